#include <unistd.h>

#include "launcher/failure.h"
#include "launcher/fronts/fronts.h"
#include "launcher/fronts/launching.h"
#include "launcher/fronts/rank_run.h"
#include "launcher/mpirun.h"
#include "launcher/rank_environment.h"
#include "launcher/stop_signals.h"
#include "launcher/supervisor.h"
#include "runtime/core/log.h"

namespace dstrain {
namespace {

// Ranks of this machine, supervised, once.
StartOutcome start_ranks(const Job& job, const LaunchOptions& options,
                         const std::vector<std::string>& words) {
  const int ranks = job.ranks;
  RankBoard board = RankBoard::create(ranks);
  const SessionDirectory session;
  RankCommand command = start_command(ranks, own_command(words), session.path());
  for (auto& variable : rank_environment(environment_sources(options.exports)).variables)
    command.environment.push_back(std::move(variable));
  if (!options.rank_log_dir.empty()) {
    const std::string prefix = rank_log_prefix(options.rank_log_dir);
    say_where(prefix);
    for (auto& variable : rank_log_environment(prefix)) command.environment.push_back(variable);
  }
  RunReport report = Supervisor({.board = board,
                                 .hosts = {},
                                 .host_of_rank = {},
                                 .command = command.words,
                                 .starter = local_starter(),
                                 .environment = command.environment,
                                 .output = STDERR_FILENO,
                                 .patience = {.instruction = job.timeout_s * 1'000'000'000}})
                         .run();
  return {std::move(report), board.stop_request() != 0};
}

}  // namespace

int run_alone(const RunInput& input, const LaunchOptions& options) {
  const RankBoard board = RankBoard::create(1);
  const int threads = take_cores(options, 0, 1);
  const std::unique_ptr<RankLog> log_file = log_of(options, 0);
  const std::unique_ptr<Communicator> comm = connect(threads, input.job(), nullptr);
  const StopSignals signals(board, StopSignals::Note::on_standard_error,
                            StopSignals::Second::ends_process);
  return status_of(train_as(0, input, *comm, board, threads));
}

int run_local_ranks(const RunInput& input, const LaunchOptions& options,
                    const std::vector<std::string>& words) {
  log::info("launcher local: {} ranks on this machine, started by {}", input.job().ranks,
            local_starter());
  return start_with_restarts(input.job(), options, words, [&](const std::vector<std::string>& all) {
    return start_ranks(input.job(), options, all);
  });
}

}  // namespace dstrain
