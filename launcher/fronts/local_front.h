// The fronts for one machine: a run in this process, and ranks that are started and supervised here.
#pragma once

#include <string>
#include <vector>

#include "launcher/cli/arguments.h"
#include "launcher/input/run_input.h"
#include "launcher/ranks/rank_command.h"

namespace dstrain {

// Trains in this process, as the only rank and without MPI. Returns the exit status.
int run_alone(const RunInput& input, const LaunchOptions& options);

// Starts the ranks on this machine and supervises them. They are forks of this process; if they use GPUs, they are
// programs with the command line `words`, because a driver's state does not survive a fork. Returns the exit status.
int run_local_ranks(const RunInput& input, const TrainArguments& arguments,
                    const std::vector<std::string>& words);

// Returns the command that stands for run_local_ranks() in --dry_run.
RankCommand local_command(const Job& job, const std::vector<std::string>& words);

}  // namespace dstrain
