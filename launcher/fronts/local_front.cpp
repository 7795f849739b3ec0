#include "launcher/fronts/local_front.h"

#include <unistd.h>

#include <optional>
#include <utility>

#include "launcher/fronts/child_rank.h"
#include "launcher/fronts/rank_run.h"
#include "launcher/fronts/start_ranks.h"
#include "launcher/output/rank_log.h"
#include "launcher/process/failure.h"
#include "launcher/process/program_path.h"
#include "launcher/process/stop_signals.h"
#include "launcher/ranks/rank_command.h"
#include "launcher/ranks/rank_starter.h"
#include "launcher/supervise/supervisor.h"
#include "runtime/config/text.h"
#include "runtime/core/cpu.h"
#include "runtime/core/log/log.h"

namespace dstrain {
namespace {

// Starts the ranks of this machine and supervises them.
class LocalStart {
 public:
  LocalStart(const RunInput& input, const TrainArguments& arguments,
             const std::vector<std::string>& words)
      : input_(input),
        arguments_(arguments),
        words_(words),
        begun_(input, arguments.request.path, arguments.launch.max_restarts > 0) {}

  StartOutcome start(const std::string& resume) {
    const Job& job = input_.job();
    RankBoard board = RankBoard::create(job.ranks);
    SupervisedRun run{.board = board,
                      .starter = kRankStarter,
                      .time_stamps = arguments_.launch.log_time,
                      .timeouts = {.instruction = job.timeout_s * 1'000'000'000}};
    std::optional<RunInput> again;
    if (std::exchange(started_, true)) {
      again.emplace(input_from(resume));
      begun_.require_unchanged(*again);
    }
    if (local_ranks(job) == RankProcesses::forks)
      fork_ranks(again ? *again : input_, board, run);
    else
      start_program(resume, run);
    if (const std::string& logs = arguments_.launch.rank_log_dir; !logs.empty()) {
      const std::string prefix = rank_log_prefix(logs);
      report_log_files(prefix);
      for (auto& variable : rank_log_environment(prefix)) run.environment.push_back(variable);
    }
    RunReport report = Supervisor(std::move(run)).run();
    return {std::move(report), board.stop_request() != 0};
  }

 private:
  // Reads the input again: from the checkpoint, or with an empty one as the first start did.
  RunInput input_from(const std::string& checkpoint) const {
    ConfigRequest request = arguments_.request;
    if (!checkpoint.empty()) request.resume_from(checkpoint);
    RunInput input = read_input(request);
    if (input.texts.made) report_texts(input.texts);  // damaged token files
    return input;
  }

  // `input` and `board` must outlive the run.
  void fork_ranks(const RunInput& input, const RankBoard& board, SupervisedRun& run) const {
    run.body = [this, &input, &board] {
      return start_ranks_here(
          board.ranks(), [&] { return run_forked_rank(input, arguments_.launch); }, &board);
    };
  }

  void start_program(const std::string& resume, SupervisedRun& run) const {
    RankCommand command = local_command(input_.job(), words_resuming(words_, resume));
    run.command = std::move(command.words);
    run.environment = std::move(command.environment);
  }

  const RunInput& input_;
  const TrainArguments& arguments_;
  const std::vector<std::string>& words_;
  BegunInput begun_;
  bool started_ = false;
};

}  // namespace

int run_alone(const RunInput& input, const LaunchOptions& options) {
  const RankBoard board = RankBoard::create(1);
  const int threads = bind_cores(options, 0, 1);
  const std::unique_ptr<RankLog> log_file = log_of(options, 0);
  const std::unique_ptr<Communicator> comm = connect(threads, input.job(), nullptr);
  const StopSignals signals(board, StopSignals::Note::on_standard_error,
                            StopSignals::Second::ends_process);
  return status_of(train_as(0, input, *comm, board, threads));
}

RankCommand local_command(const Job& job, const std::vector<std::string>& words) {
  const std::vector<std::string> program = own_command(words);
  return local_ranks(job) == RankProcesses::forks ? RankCommand{program, {}}
                                                  : starter_command(job.ranks, program);
}

int run_local_ranks(const RunInput& input, const TrainArguments& arguments,
                    const std::vector<std::string>& words) {
  const int ranks = input.job().ranks;
  log::info("launcher local: {} on this machine", counted(ranks, "rank"));
  const int cores = usable_core_count();
  if (ranks > cores && !is_gpu(input.job().device))
    log::warn("{} ranks share {}, so they take turns: --num_gpus {} would be faster", ranks,
              counted(cores, "core"), cores);
  LocalStart local(input, arguments, words);
  return start_with_restarts(input.job(), arguments.launch,
                             [&local](const std::string& resume) { return local.start(resume); });
}

}  // namespace dstrain
