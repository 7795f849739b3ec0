// OpenMpi: the Open MPI on PATH: mpirun, which the launching process starts, and its daemon (orted), which
// mpirun starts on other hosts.
#pragma once

#include <string>

namespace dstrain {

struct OpenMpi {
  bool mpirun = false, orted = false;  // they are on PATH
  std::string version;                 // "4.1.4"; empty: unknown
  std::string other;                   // mpirun's own words, where it is another MPI's
};

// Asks the mpirun on PATH for its version.
OpenMpi find_open_mpi();

// The version in what `mpirun --version` prints; empty where it is not Open MPI's. Pure.
std::string open_mpi_version(const std::string& said);

}  // namespace dstrain
