// What the fronts that start ranks share: restarts, what they compare, and --dry_run.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "launcher/cli/launch_options.h"
#include "launcher/input/compared_files.h"
#include "launcher/placement/resources.h"
#include "launcher/ranks/rank_command.h"
#include "launcher/supervise/restart.h"
#include "runtime/config/job.h"

namespace dstrain {

// What a run with --max_restarts began with. A restart reads its input again, which must be the same.
class BegunInput {
 public:
  // Remembers the files of `input` and of the configuration `config` if there may be restarts. Throws UserError if a
  // restart could not read them.
  BegunInput(const RunInput& input, const std::string& config, bool restarts);
  // Throws UserError if files of a restart's input are others.
  void require_unchanged(const RunInput& now) const;

 private:
  std::string config_;
  ComparedFiles files_;
};

// Starts the ranks, and restarts them as often as --max_restarts allows. Returns the exit status.
int start_with_restarts(const Job& job, const LaunchOptions& options, const StartRanks& start);

// Returns the command line without --dry_run.
std::vector<std::string> without_dry_run(std::vector<std::string> words);

// Prints where ranks would run, as comments for a shell, and the command that would start them. Returns the exit
// status.
int print_dry_run(const Placement& placement, const RankCommand& command);

}  // namespace dstrain
