#include "launcher/fronts/start_ranks.h"

#include <filesystem>
#include <sstream>
#include <system_error>

#include "launcher/placement/placement_text.h"
#include "launcher/process/failure.h"
#include "runtime/core/error.h"
#include "runtime/core/log/log.h"

namespace dstrain {

namespace {

// Returns whether a configuration is the resolved one of the run itself, which every start writes again.
bool is_own(const std::string& config, const RunInput& input) {
  const std::filesystem::path path = config;
  std::error_code error;
  return path.filename() == kResolvedConfig &&
         std::filesystem::equivalent(std::filesystem::absolute(path).parent_path(),
                                     input.job().output, error) &&
         !error;
}

}  // namespace

BegunInput::BegunInput(const RunInput& input, const std::string& config, bool restarts)
    : config_(is_own(config, input) ? "" : config) {
  if (!restarts) return;
  if (!config.empty()) require_rereadable(config, "every restart reads it again");
  files_ = compared_files(input, config_);
}

void BegunInput::require_unchanged(const RunInput& now) const {
  dstrain::require_unchanged(files_, compared_files(now, config_));
}

int start_with_restarts(const Job& job, const LaunchOptions& options, const StartRanks& start) {
  if (options.max_restarts > 0 && job.save_interval == 0)
    log::warn("--max_restarts without --save_interval: every restart begins at step 1");
  return run_with_restarts({.most = options.max_restarts, .output = job.output}, start);
}

std::vector<std::string> without_dry_run(std::vector<std::string> words) {
  std::erase(words, "--dry_run");
  return words;
}

int print_dry_run(const Placement& placement, const RankCommand& command) {
  std::istringstream lines(placement_text(placement));
  std::string text;
  for (std::string line; std::getline(lines, line);) text += fmt::format("# {}\n", line);
  print_result(text + command_text(command));
  return 0;
}

}  // namespace dstrain
