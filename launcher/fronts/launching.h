// What fronts that start ranks have in common: starting them again, and showing instead of starting.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "launcher/launch_options.h"
#include "launcher/mpirun.h"
#include "launcher/restart.h"
#include "runtime/config/job.h"

namespace dstrain {

// Starts ranks with the command line `words`, until all are gone.
using StartWith = std::function<StartOutcome(const std::vector<std::string>& words)>;

// Starts the ranks, and again as often as --max_restarts allows. Returns the exit status.
int start_with_restarts(const Job& job, const LaunchOptions& options,
                        const std::vector<std::string>& words, const StartWith& start);

// The command line without what only shows what would be done.
std::vector<std::string> to_start(std::vector<std::string> words);

// --dry_run: prints the command, as a shell takes it. Returns the exit status.
int show(const RankCommand& command);

}  // namespace dstrain
