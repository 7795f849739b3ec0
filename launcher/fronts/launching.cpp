#include "launcher/fronts/launching.h"

#include "launcher/failure.h"
#include "launcher/hosts/start.h"
#include "runtime/core/log.h"

namespace dstrain {

int start_with_restarts(const Job& job, const LaunchOptions& options,
                        const std::vector<std::string>& words, const StartWith& start) {
  if (options.max_restarts > 0 && job.save_interval == 0)
    log::warn("--max_restarts without --save_interval: every restart begins from the beginning");
  const RestartOptions restarts{.most = options.max_restarts, .output = job.output};
  return run_with_restarts(
      restarts, [&](const std::string& resume) { return start(words_resuming(words, resume)); });
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
