#include "launcher/fronts/hosts_front.h"

#include <fmt/format.h>

#include <utility>

#include "launcher/fronts/elastic.h"
#include "launcher/fronts/rank_run.h"
#include "launcher/fronts/start_ranks.h"
#include "launcher/hosts/start/hosts_run.h"
#include "launcher/hosts/start/run_questions.h"
#include "launcher/placement/machine.h"
#include "launcher/process/failure.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/core/log/log.h"

namespace dstrain {
namespace {

std::string size_of(const Placement& placement) {
  return fmt::format("{} on {}", counted(placement.ranks(), "rank"),
                     counted(static_cast<int64_t>(placement.hosts.size()), "host"));
}

// Starts the ranks of one run, again after a failure, each time on the hosts that are left.
class Starts {
 public:
  // `input` and `words` must outlive this object.
  Starts(const Placement& placement, const TrainArguments& arguments, const RunInput& input,
         const std::vector<std::string>& words)
      : placement_(placement),
        arguments_(arguments),
        first_(input),
        words_(words),
        begun_(input, arguments.request.path, arguments.launch.max_restarts > 0) {}

  StartOutcome start(const std::string& resume) {
    if (arguments_.launch.elastic) leave_out(lost_);
    StartOutcome outcome = try_to_start(words_resuming(words_, resume));
    lost_ = outcome.report.lost_hosts;
    return outcome;
  }

 private:
  // At a restart, hosts that are not ready are a failure of the run, not of the user's input: they may become ready.
  StartOutcome try_to_start(const std::vector<std::string>& words) {
    const bool again = std::exchange(started_, true);
    try {
      if (!again) return HostsRun(placement_, arguments_, first_).start(words);
      const HostInput now = read_host_input(words, placement_.ranks(), *arguments_.request.models,
                                            RunsWhere::elsewhere, CacheUse::make);
      begun_.require_unchanged(now.input);
      if (now.input.texts.made) report_texts(now.input.texts);  // damaged token files
      return HostsRun(placement_, arguments_, now.input).start(words);
    } catch (const HostsNotReady& e) {
      if (!again) throw;
      return {{2, e.what(), e.hosts()}, false};
    } catch (const RunError& e) {  // as of a host that is lost while ranks start
      return {{2, e.what()}, false};
    }
  }

  void leave_out(const std::vector<std::string>& names) {
    if (names.empty()) return;
    Placement rest = placement_;
    rest.hosts = hosts_without(placement_.hosts, names);
    if (rest.hosts.size() == placement_.hosts.size()) return;  // this machine, which has no ranks
    const std::string which = fmt::format("{}", fmt::join(names, ", "));
    if (const std::string reason =
            reason_against_ranks(arguments_.request, first_.job().batch.train_batch, rest.ranks());
        !reason.empty()) {
      log::warn("--elastic: {} cannot be left out: {}", which, reason);
      return;
    }
    placement_ = rest;
    log::warn("--elastic: {} {} left out from now on: {}", which, names.size() == 1 ? "is" : "are",
              size_of(rest));
  }

  Placement placement_;
  TrainArguments arguments_;
  const RunInput& first_;  // the input of the first start
  const std::vector<std::string>& words_;
  BegunInput begun_;
  std::vector<std::string> lost_;  // hosts that the last start lost
  bool started_ = false;
};

}  // namespace

bool on_hosts(const Placement& placement, const LaunchOptions& options) {
  if (options.front == Front::local) {
    if (placement.hosts.size() > 1)
      fail_user(
          "--launcher local starts ranks on this machine, and {} names {} hosts: use "
          "--launcher openmpi",
          placement.hostfile, placement.hosts.size());
    return false;
  }
  return placement.hosts.size() > 1 || options.force_multi || options.front == Front::openmpi ||
         !is_this_machine(placement.hosts.front().host);
}

int run_on_hosts(const Placement& placement, const TrainArguments& arguments, const RunInput& input,
                 const std::vector<std::string>& words) {
  const LaunchOptions& options = arguments.launch;
  if (options.elastic)
    check_elastic(placement.hosts, arguments.request, input.job().batch.train_batch);
  log::info("launcher openmpi: {}{}, started by ssh and mpirun", size_of(placement),
            placement.hostfile.empty() ? "" : " of " + placement.hostfile);
  if (options.dry_run)
    return print_dry_run(placement,
                         HostsRun(placement, arguments, input).command(without_dry_run(words)));
  if (!options.rank_log_dir.empty())
    log::info("each rank writes to a file in {} on its host", options.rank_log_dir);
  Starts starts(placement, arguments, input, words);
  return start_with_restarts(input.job(), options,
                             [&starts](const std::string& resume) { return starts.start(resume); });
}

}  // namespace dstrain
