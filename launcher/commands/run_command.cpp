#include "launcher/commands/run_command.h"

#include <unistd.h>

#include <csignal>
#include <variant>

#include "launcher/cli/command_names.h"
#include "launcher/cli/help/help_text.h"
#include "launcher/cli/parse_arguments.h"
#include "launcher/commands/commands.h"
#include "launcher/nodes/relay.h"
#include "launcher/nodes/served_relay.h"
#include "launcher/process/failure.h"
#include "launcher/ranks/rank_link.h"
#include "launcher/ranks/rank_starter.h"
#include "launcher/supervise/watchers/host_watch.h"
#include "runtime/config/read/resolved_source.h"
#include "runtime/core/error.h"
#include "runtime/core/log/terminal.h"

namespace dstrain {
namespace {

struct Runner {
  const std::vector<std::string>& words;
  const ModelRegistry& models;
  int operator()(const TrainArguments& a) const { return run_train(a, words); }
  int operator()(const PlanArguments& a) const { return run_plan(a); }
  int operator()(const InitArguments& a) const { return run_init(a, models); }
  int operator()(const VerifyArguments& a) const { return run_verify(a); }
  int operator()(const CheckArguments& a) const { return run_check(a); }
  int operator()(const EstimateArguments& a) const { return run_estimate(a); }
  int operator()(const GenerateArguments& a) const { return run_generate(a, models); }
  int operator()(const ChatArguments& a) const { return run_chat(a, models); }
  int operator()(const EvalArguments& a) const { return run_eval(a, models); }
  int operator()(const TeachArguments& a) const { return run_teach(a, models); }
  int operator()(const ExportArguments& a) const { return run_export(a, models); }
  int operator()(const ImportArguments& a) const { return run_import(a); }
  int operator()(const TokenizeArguments& a) const { return run_tokenize(a); }
  int operator()(const ReportArguments& a) const { return run_report(a); }
  int operator()(const CompareArguments& a) const { return run_compare(a); }
  int operator()(const WatchArguments& a) const { return run_watch(a); }
  int operator()(const ModelsArguments& a) const { return run_models(a, models); }
  int operator()(const HostsArguments& a) const { return run_hosts(a); }
  int operator()(const DoctorArguments& a) const { return run_doctor(a); }
  int operator()(const BenchIoArguments& a) const { return run_bench_io(a); }
  int operator()(const HostAgentArguments& a) const { return run_host_agent(a, models); }
  int operator()(const HostWatchArguments&) const { return watch_host(task_of_this_watcher()); }
  int operator()(const RelayArguments& a) const { return relay(a.words); }
  int operator()(const RelayEndArguments&) const { return run_relay_end(); }
  int operator()(const RankStarterArguments& a) const {
    if (!launched_as_rank())
      fail_user("{} is a part of dstrain that it starts itself: use dstrain --num_gpus {}",
                kRankStarterCommand, a.ranks);
    return start_ranks_here(static_cast<int>(a.ranks), [this, &a] { return run(a.words, models); });
  }
  int operator()(const HelpArguments& a) const {
    const int columns =
        ::isatty(STDOUT_FILENO) == 1 ? terminal_columns(STDOUT_FILENO) : kHelpColumns;
    print_result(a.commands.empty() ? help_text(a.command, columns)
                                    : overview_text(a.command, a.commands, columns));
    return 0;
  }
  int operator()(const PrintArguments& a) const {
    print_result(a.text);
    return 0;
  }
};

// Completes the request of a command that reads a configuration.
constexpr auto complete = [](auto& arguments) {
  if constexpr (requires { arguments.request; }) complete_request(arguments.request);
};

}  // namespace

int run(const std::vector<std::string>& words, const ModelRegistry& models) noexcept {
  std::signal(SIGXFSZ,
              SIG_IGN);  // a file that grows too large is an error to report, like a full disk
  std::signal(SIGCHLD, SIG_DFL);  // where the caller ignores it, the kernel keeps no exit status
  try {
    Arguments arguments = parse_arguments(words, models);
    std::visit(complete, arguments);
    return std::visit(Runner{words, models}, arguments);
  } catch (...) {
    return report_failure();
  }
}

}  // namespace dstrain
