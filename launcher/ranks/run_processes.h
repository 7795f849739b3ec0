// The processes of a run on this host, found in /proc by the run's name.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace dstrain {

// Returns the processes of this user in this network namespace that have the run's name in their environment or command
// line, without this process.
std::vector<pid_t> processes_of_run(const std::string& run);

// Kills these processes (SIGKILL) until none is left, for a few seconds at most. Returns how many are left.
size_t kill_run(const std::string& run);

}  // namespace dstrain
