// All that `dstrain doctor` finds out about this machine without a configuration.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "launcher/doctor/machine_line.h"
#include "runtime/config/job.h"

namespace dstrain {

// What is asked about: a run of `ranks` ranks here.
struct MachineQuestions {
  int ranks = 1;
  DeviceChoice device = DeviceChoice::automatic;
  std::string output = ".";           // the directory of its results
  std::vector<std::string> drives{};  // directories that it offloads to
  AioConfig aio{};                    // how it reads and writes there
  std::filesystem::path root = "/";   // whose proc and sys are read
};

// Returns the lines about this machine. Starts no rank, and leaves nothing in any directory.
MachineLines look_at_machine(const MachineQuestions& q);

// Returns the lines and the questions' ranks as one object, in which this machine and this program are named.
std::string machine_report(const MachineLines& lines, int ranks);

}  // namespace dstrain
