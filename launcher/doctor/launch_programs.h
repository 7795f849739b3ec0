// The programs that start ranks on other machines: Open MPI's, ssh, Slurm's.
#pragma once

#include <string>

#include "launcher/doctor/machine_line.h"
#include "launcher/hosts/open_mpi.h"
#include "runtime/comm/world.h"

namespace dstrain {

// A program and the first line that it prints about its version.
struct LaunchProgram {
  bool found = false;  // on PATH
  std::string said{};  // empty: nothing in time
};

// The programs that are found here.
struct LaunchPrograms {
  bool has_mpi = false;  // this program is built with MPI
  OpenMpi open_mpi{};
  LaunchProgram ssh{}, srun{};
};

// Looks for the programs on PATH, and asks each for its version.
LaunchPrograms launch_programs();

MachineLines launch_program_lines(const LaunchPrograms& programs);

}  // namespace dstrain
