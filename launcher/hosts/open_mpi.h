// The Open MPI on PATH: mpirun, which the launching process starts, and its daemon orted, which mpirun starts on other
// hosts.
#pragma once

#include <string>

namespace dstrain {

struct OpenMpi {
  bool mpirun = false, orted = false;  // whether they are on PATH
  std::string version;                 // "4.1.4"; empty: unknown
  std::string other;                   // the first line that mpirun prints, if it is another MPI's
};

// Looks for the programs, and asks mpirun for its version.
OpenMpi find_open_mpi();

// Returns the version in what `mpirun --version` prints; empty if it is not Open MPI's. Pure.
std::string open_mpi_version(const std::string& said);

}  // namespace dstrain
