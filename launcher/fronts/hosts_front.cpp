#include "launcher/fronts/hosts_front.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "launcher/fronts/elastic.h"
#include "launcher/fronts/start_ranks.h"
#include "launcher/hosts/start/hosts_run.h"
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
  Starts(const Placement& placement, const TrainArguments& arguments, const RunInput& input)
      : placement_(placement),
        arguments_(arguments),
        input_(&input),
        train_batch_(input.job().batch.train_batch) {}

  StartOutcome start(const std::vector<std::string>& words) {
    if (arguments_.launch.elastic) leave_out(lost_);
    StartOutcome outcome = try_to_start(words);
    lost_ = outcome.report.lost_hosts;
    return outcome;
  }

 private:
  // At a restart, hosts that are not ready are a failure of the run, not of the user's input: they may become ready.
  StartOutcome try_to_start(const std::vector<std::string>& words) {
    const bool again = std::exchange(started_, true);
    try {
      return HostsRun(placement_, arguments_, *input_).start(words);
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
            reason_against_ranks(arguments_.request, train_batch_, rest.ranks());
        !reason.empty()) {
      log::warn("--elastic: {} cannot be left out: {}", which, reason);
      return;
    }
    placement_ = rest;
    arguments_.request.ranks = rest.ranks();
    smaller_ = read_input(arguments_.request, RunsWhere::elsewhere);
    input_ = &*smaller_;
    log::warn("--elastic: {} {} left out from now on: {}", which, names.size() == 1 ? "is" : "are",
              size_of(rest));
  }

  Placement placement_;
  TrainArguments arguments_;
  const RunInput* input_;
  int64_t train_batch_;
  std::optional<RunInput> smaller_;  // the input for fewer ranks
  std::vector<std::string> lost_;    // hosts that the last start lost
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
  Starts starts(placement, arguments, input);
  return start_with_restarts(input.job(), options, [&](const std::string& resume) {
    return starts.start(words_resuming(words, resume));
  });
}

}  // namespace dstrain
