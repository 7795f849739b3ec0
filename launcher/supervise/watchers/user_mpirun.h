// The mpirun of the user's that started the ranks of this host.
#pragma once

#include <sys/types.h>

#include <string>

namespace dstrain {

// Returns what to do about an mpirun that does not end when a host of the run is lost, for the end of an error; empty if
// no mpirun started the process `rank`. Must be called while that process lives.
std::string mpirun_advice(pid_t rank);

}  // namespace dstrain
