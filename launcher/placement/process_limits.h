// ProcessLimits: how many open files, processes and threads the system lets a user's processes have, compared before
// the start with what a run needs, so that it does not end in the middle of its start.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace dstrain {

// The processes and threads that a user may still start.
struct FreeProcesses {
  int64_t count = std::numeric_limits<int64_t>::max();
  std::string source;  // for messages: "ulimit -u is 100, and 90 are there"
};

// What one machine offers.
struct ProcessLimits {
  int64_t open_files = std::numeric_limits<int64_t>::max();  // of a process
  FreeProcesses processes;
};

// What a run needs on one machine.
struct ProcessNeeds {
  int64_t open_files = 0;  // of a process
  int64_t processes = 0;   // and threads
};

// What a machine lacks: a word for a table ("files", "processes"), and a sentence that says how to get it.
struct ProcessLack {
  std::string what, text;
};

// Returns the limits of this process.
ProcessLimits process_limits();

// Returns what `user` may still start where `most` (RLIMIT_NPROC) limits all of the user's processes, and the control
// groups of this process (pids.max) what is in them, whichever leaves less. Reads files below `root`, which tests
// replace.
FreeProcesses free_processes(int64_t most, uid_t user, const std::filesystem::path& root = "/");

// Returns what a machine needs for `ranks` ranks of `threads` threads each, in a run with `hosts` other hosts.
ProcessNeeds process_needs(int64_t ranks, int64_t threads, int64_t hosts);

// Returns what is missing. `where`: "here" or "there", for the sentences.
std::vector<ProcessLack> lacks(const ProcessLimits& limits, const ProcessNeeds& needs,
                               std::string_view where);

// Throws UserError if this machine lacks something for `ranks` ranks of a run, each with the threads that the user asks
// for, or else its share of the cores.
void check_process_limits(int ranks);

}  // namespace dstrain
