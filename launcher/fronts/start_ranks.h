// What fronts that start ranks have in common: starting them again, and showing instead of starting.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "launcher/cli/launch_options.h"
#include "launcher/placement/resources.h"
#include "launcher/ranks/rank_command.h"
#include "launcher/supervise/restart.h"
#include "runtime/config/job.h"

namespace dstrain {

// Starts the ranks, and again as often as --max_restarts allows. Returns the exit status.
int start_with_restarts(const Job& job, const LaunchOptions& options, const StartRanks& start);

// The command line without what only shows what would be done.
std::vector<std::string> to_start(std::vector<std::string> words);

// --dry_run: prints where ranks would run, as a shell's comment, and the command, as a shell takes it. Returns the
// exit status.
int show(const Placement& placement, const RankCommand& command);

}  // namespace dstrain
