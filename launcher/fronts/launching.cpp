#include "launcher/fronts/launching.h"

#include "launcher/failure.h"
#include "launcher/hosts/start.h"
#include "runtime/core/log.h"

namespace dstrain {

int start_with_restarts(const Job& job, const LaunchOptions& options, const StartRanks& start) {
  if (options.max_restarts > 0 && job.save_interval == 0)
    log::warn("--max_restarts without --save_interval: every restart begins from the beginning");
  return run_with_restarts({.most = options.max_restarts, .output = job.output}, start);
}

std::vector<std::string> to_start(std::vector<std::string> words) {
  std::erase(words, "--dry_run");
  return words;
}

int show(const RankCommand& command) {
  print_result(command_text(command));
  return 0;
}

}  // namespace dstrain
