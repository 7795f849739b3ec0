// The processor's cores: which ones a run may use here, and how they are arranged.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "launcher/doctor/machine_line.h"

namespace dstrain {

// The cores of this machine as a run here meets them.
struct CoreFacts {
  std::string processor;    // its name; empty: unknown
  std::vector<int> online;  // cores of the machine
  std::vector<int> usable;  // those in this process's affinity mask
  int quota = 0;            // of the control group, in cores, rounded up; 0: none
  // How many physical cores the usable ones are threads of, and in how many sockets and NUMA nodes these are.
  int physical = 1, sockets = 1, nodes = 1;

  // Returns how many cores a run may keep busy.
  int count() const;
};

// Returns the value of a field of the first processor in proc/cpuinfo ("model name"); empty if there is none.
std::string cpuinfo_field(const std::filesystem::path& root, const std::string& field);

// Reads files below `root`, which tests replace. `usable`: the cores of the affinity mask.
CoreFacts core_facts(const std::filesystem::path& root, const std::vector<int>& usable);

// Returns the lines about cores for a run of `ranks` ranks here. `threads`: that OMP_NUM_THREADS asks for; 0: none.
MachineLines core_lines(const CoreFacts& facts, int ranks, int threads);

}  // namespace dstrain
