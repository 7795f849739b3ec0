// dstrain train: who runs what where. The launching process checks the input; a run of one rank then
// happens in it, more ranks are started under mpirun and supervised. Where a user's own mpirun started
// this process, it is one rank of that world.
#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>

#include "launcher/commands.h"
#include "launcher/core_binding.h"
#include "launcher/failure.h"
#include "launcher/hosts/launch.h"
#include "launcher/mpirun.h"
#include "launcher/pid_file.h"
#include "launcher/rank_environment.h"
#include "launcher/rank_link.h"
#include "launcher/rank_log.h"
#include "launcher/restart.h"
#include "launcher/run_input.h"
#include "launcher/slurm.h"
#include "launcher/slurm_front.h"
#include "launcher/stop_signals.h"
#include "launcher/supervisor.h"
#include "runtime/core/cpu.h"
#include "runtime/core/device.h"
#include "runtime/core/error.h"
#include "runtime/core/log.h"
#include "runtime/engine/run.h"

namespace dstrain {
namespace {

// How long a rank waits for rank 0 to report an error that both have, and for mpirun to act on it.
constexpr std::chrono::seconds kPatience{2};

bool started_by_mpirun() {
  return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr;
}

// Binds this rank as far as it is known which of the visible cores are its own.
int take_cores_of(const SlurmJob& job, int rank_on_host, int ranks_on_host) {
  const std::vector<int> cores = usable_cores();
  const CoreUse use = core_use(job, rank_on_host, ranks_on_host, static_cast<int>(cores.size()));
  if (use.bound) return take_core_share(use.rank_on_host, use.ranks_on_host, use.threads);
  bind_to_cores(cores, use.threads);
  return use.threads;
}

// The cores and threads that the options bind a rank to, or else its share of the cores with
// OMP_NUM_THREADS threads (the launching process sets it for its ranks), where that is set.
int take_cores(const LaunchOptions& options, int rank_on_host, int ranks_on_host) {
  const CoreBinding binding(options);
  if (binding.wanted()) return binding.take(rank_on_host, ranks_on_host);
  if (const std::optional<SlurmJob> job = slurm_job())
    return take_cores_of(*job, rank_on_host, ranks_on_host);
  const int wanted = std::getenv("OMP_NUM_THREADS") == nullptr ? 0 : ::omp_get_max_threads();
  return take_core_share(rank_on_host, ranks_on_host, wanted);
}

void say_where(const std::string& log_prefix) {
  log::info("each rank writes to {}_rank*.log", log_prefix);
}

// The file that a rank without a launching process writes to, where the options want one.
std::unique_ptr<RankLog> log_of(const LaunchOptions& options, int rank) {
  if (options.rank_log_dir.empty()) return nullptr;
  const std::string prefix = rank_log_prefix(options.rank_log_dir);
  if (rank == 0) say_where(prefix);
  return std::make_unique<RankLog>(prefix, rank);
}

// What only a launching process can do.
void refuse_without_launcher(const LaunchOptions& options, const std::string& starter) {
  if (options.save_pid)
    fail_user("--save_pid names a launching dstrain, and {} started the ranks: leave it out",
              starter);
  if (options.max_restarts > 0)
    fail_user(
        "--max_restarts needs a launching dstrain, and {} started the ranks: start dstrain "
        "without {}, or leave it out",
        starter, starter);
}

std::unique_ptr<Communicator> connect(int threads, const Job& job, RankSlot* slot) {
  CommOptions options;
  options.threads = threads;
  options.deadline_seconds = static_cast<double>(job.timeout_s);
  options.slot = slot;
  options.warn = [](const std::string& text) { log::warn("{}", text); };
  return make_communicator(options);
}

void announce(const RunInput& input) {
  for (const std::string& warning : input.loaded.warnings) log::warn("{}", warning);
  log::info("{}", input.dataset->summary());
}

// One rank's run over a communicator that is set up. Marks the slot; throws what train() throws.
RunOutcome train_as(int rank, const RunInput& input, Communicator& comm, const RankBoard& board,
                    int threads) {
  RankSlot& slot = board.slot(rank);
  slot.set_state(RankState::running);
  RunContext context;
  context.comm = &comm;
  context.slot = &slot;
  context.stop_signal = [&board] { return board.stop_request(); };
  context.resolved_config = resolved_config_json(input.loaded);
  context.threads = threads;
  context.gpu = rank_on_this_host_from_environment() % std::max(cuda_devices(), 1);
  const RunOutcome outcome = train(input.job(), *input.dataset, context);
  if (outcome.stop_signal != 0) board.set_stopped(outcome.stop_signal);
  comm.finish();
  slot.set_state(RankState::done);
  return outcome;
}

int status_of(const RunOutcome& outcome) {
  return outcome.stop_signal == 0 ? 0 : 128 + outcome.stop_signal;
}

// A rank that a launching dstrain started: its failure goes to the board, its launcher reports it.
int run_launched_rank(const TrainArguments& arguments) {
  ConfigRequest request = arguments.request;
  const int rank = world_rank_from_environment();
  const RankBoard board = join_launcher(rank);
  std::unique_ptr<RankLog> log_file;
  std::unique_ptr<Communicator> comm;
  try {
    const int ranks = board.ranks();
    check(world_size_from_environment() == ranks, "{} processes for {} ranks",
          world_size_from_environment(), ranks);
    request.ranks = ranks;
    log_file = RankLog::from_environment(rank);
    const int threads = take_cores(arguments.launch, rank_on_this_host_from_environment(),
                                   ranks_on_this_host_from_environment());
    const RunInput input = read_input(request);
    comm = connect(threads, input.job(), &board.slot(rank));
    train_as(rank, input, *comm, board, threads);
    return 0;
  } catch (...) {
    const Failure failure = current_failure();
    board.fail(rank, failure.kind, failure.text);  // first, so that a peer's failure comes after it
    if (comm) comm->abort(failure.text);
    return failure.exit_status();
  }
}

// Rank 0's board, opened by every rank of a world on one machine, so that one failure is told once;
// elsewhere a board of its own for each. Collective.
RankBoard share_board(Communicator& comm) {
  RankBoard own = RankBoard::create(comm.size());
  if (ranks_on_this_host_from_environment() != comm.size()) return own;
  std::array<double, 64> mine{};  // the address, a character in each
  const std::string address = own.address();
  std::copy(address.begin(), address.end(), mine.begin());
  std::vector<double> all(mine.size() * static_cast<size_t>(comm.size()));
  comm.gather_values(mine, all);
  if (comm.rank() == 0) {
    comm.barrier();
    return own;
  }
  std::string of_root;
  for (size_t i = 0; i < mine.size() && all[i] != 0; ++i) of_root += static_cast<char>(all[i]);
  RankBoard board = RankBoard::attach(of_root);
  comm.barrier();
  return board;
}

// The lowest rank that has failed; nothing where none has. Collective.
std::optional<int> first_failed(Communicator& comm, bool failed) {
  const double mine = failed ? 1 : 0;
  std::vector<double> all(static_cast<size_t>(comm.size()));
  comm.gather_values({&mine, 1}, all);
  const auto first = std::ranges::find(all, 1.0);
  if (first == all.end()) return std::nullopt;
  return static_cast<int>(first - all.begin());
}

// A rank of srun's could not read its input. Slurm lets the other tasks live, so ranks tell each other:
// one error, and all end.
int fail_with_peers(const Failure& failure, int rank) {
  const std::unique_ptr<Communicator> comm = connect(1, Job{}, nullptr);
  if (first_failed(*comm, true) == rank) print_error(log::rank_mark(rank) + failure.text);
  comm->finish();
  return failure.exit_status();
}

// A rank that a user's own mpirun or srun (then `job`) started. There is no launching process: rank 0
// speaks for the input, and whoever fails first for the run.
int run_world_rank(const TrainArguments& arguments, const std::optional<SlurmJob>& job) {
  ConfigRequest request = arguments.request;
  const int rank = world_rank_from_environment();
  const int ranks = world_size_from_environment();
  const std::string starter = job ? "srun" : "mpirun";
  log::set_rank(rank);
  std::unique_ptr<Communicator> comm;
  std::optional<RankBoard> board;
  try {
    refuse_unavailable(arguments.launch);
    refuse_without_launcher(arguments.launch, starter);
    if (request.ranks && *request.ranks != ranks)
      fail_user("--num_gpus is {}, but {} started {} ranks: leave --num_gpus out", *request.ranks,
                starter, ranks);
    request.ranks = ranks;
    request.ranks_origin = starter;
    const std::string requeued = job ? resume_after_requeue(*job, request) : "";
    const int ranks_here = ranks_on_this_host_from_environment();
    const int threads =
        take_cores(arguments.launch, rank_on_this_host_from_environment(), ranks_here);
    const RunInput input = read_input(request);
    if (rank == 0) {
      log::info("inside mpirun: {} ranks, {} of them on this machine", ranks, ranks_here);
      check_surroundings(input.job(), ranks_here);
      if (!requeued.empty()) log::info("{}", requeued);
      announce(input);
    }
    const std::unique_ptr<RankLog> log_file = log_of(arguments.launch, rank);
    comm = connect(threads, input.job(), nullptr);
    if (job && first_failed(*comm, false)) {
      comm->finish();
      return 1;
    }
    board.emplace(share_board(*comm));
    const StopSignals signals(*board, StopSignals::Note::none,
                              StopSignals::Second::ends_process_later);
    return status_of(train_as(rank, input, *comm, *board, threads));
  } catch (...) {
    const Failure failure = current_failure();
    if (job && !comm) return fail_with_peers(failure, rank);
    const bool first = board ? board->fail(rank, failure.kind, failure.text) : rank == 0;
    if (comm) comm->abort(failure.text);
    // Without a board all ranks fail alike over the input; where this one alone does, rank 0 lives on.
    if (!first && !board) std::this_thread::sleep_for(kPatience);
    if (first || !board)
      print_error(rank == 0 ? failure.text : fmt::format("[rank {}] {}", rank, failure.text));
    return failure.exit_status();
  }
}

// The whole run in this process, without MPI.
int run_alone(const RunInput& input, const LaunchOptions& options) {
  const RankBoard board = RankBoard::create(1);
  const int threads = take_cores(options, 0, 1);
  const std::unique_ptr<RankLog> log_file = log_of(options, 0);
  const std::unique_ptr<Communicator> comm = connect(threads, input.job(), nullptr);
  const StopSignals signals(board, StopSignals::Note::on_standard_error,
                            StopSignals::Second::ends_process);
  return status_of(train_as(0, input, *comm, board, threads));
}

// Ranks under mpirun, supervised, once.
StartOutcome start_ranks(const Job& job, const LaunchOptions& options,
                         const std::vector<std::string>& words) {
  const int ranks = job.ranks;
  RankBoard board = RankBoard::create(ranks);
  const SessionDirectory session;
  RankCommand command = mpirun_command(ranks, own_command(words), session.path());
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
                                 .environment = command.environment,
                                 .output = STDERR_FILENO,
                                 .patience = {.instruction = job.timeout_s * 1'000'000'000}})
                         .run();
  return {std::move(report), board.stop_request() != 0};
}

// Starts the ranks, and again as often as --max_restarts allows.
int launch(const Job& job, const LaunchOptions& options, const std::vector<std::string>& words,
           const std::function<StartOutcome(const std::vector<std::string>& words)>& start) {
  if (options.max_restarts > 0 && job.save_interval == 0)
    log::warn("--max_restarts without --save_interval: every restart begins from the beginning");
  const RestartOptions restarts{.most = options.max_restarts, .output = job.output};
  return run_with_restarts(
      restarts, [&](const std::string& resume) { return start(words_resuming(words, resume)); });
}

// The command line without what only shows what would be done.
std::vector<std::string> to_start(std::vector<std::string> words) {
  std::erase(words, "--dry_run");
  return words;
}

int show(const RankCommand& command) {
  print_result(command_text(command));
  return 0;
}

// Whether ranks are started as on several hosts: there are several, or the one is another machine.
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
  refuse_on_hosts(options);
  log::info("launcher openmpi: {} ranks on {} hosts{}, started by ssh and mpirun",
            placement.ranks(), placement.hosts.size(),
            placement.hostfile.empty() ? "" : " of " + placement.hostfile);
  const HostsRun run(placement, arguments, input);
  if (options.dry_run) return show(run.command(to_start(words)));
  return launch(input.job(), options, words,
                [&](const std::vector<std::string>& all) { return run.start(all); });
}

}  // namespace

int run_train(const TrainArguments& arguments, const std::vector<std::string>& words) {
  const LaunchOptions& options = arguments.launch;
  if (options.quiet) log::set_least(log::Level::warning);
  if (launched_as_rank()) return run_launched_rank(arguments);
  const std::optional<SlurmJob> job = started_by_mpirun() ? std::nullopt : slurm_front(options);
  if (job && is_rank_of_srun(*job)) {
    if (!job->task->pmix && job->task->rank != 0) return 1;  // rank 0 says it
    take_place_in_world(*job->task);
    return run_world_rank(arguments, job);
  }
  if (started_by_mpirun()) return run_world_rank(arguments, job);
  refuse_unavailable(options);
  const Placement placement = place_ranks(options.hosts, local_slots());
  for (const std::string& warning : placement.warnings) log::warn("{}", warning);
  ConfigRequest request = arguments.request;
  std::vector<std::string> rank_words = words;
  if (job) {
    settle_ranks(*job, request);
    const std::string requeued = resume_after_requeue(*job, request);
    if (!requeued.empty()) log::info("{}", requeued);
    rank_words = words_resuming(words, request.resume.value_or(""));
  }
  int ranks = placement.ranks();
  if (placement.hostfile.empty()) {
    settle_ranks(request);
    ranks = static_cast<int>(*request.ranks);
  } else {
    request.ranks = ranks;
    request.ranks_origin = placement.hostfile;
  }
  const RankEnvironment environment = rank_environment(environment_sources(options.exports));
  const bool becomes_srun = job && needs_srun(*job, options);
  const bool several = on_hosts(placement, options);
  if (!several && (ranks == 1 || becomes_srun)) take_environment(environment.variables, words);
  for (const std::string& warning : environment.warnings) log::warn("{}", warning);
  const RunInput input = read_input(request);
  if (!several && becomes_srun) launch_by_srun(*job, options, ranks, words);
  std::optional<PidFile> pid_file;
  if (options.save_pid) {
    pid_file.emplace();
    log::info("launcher pid: {}", ::getpid());
  }
  if (several) {
    check_surroundings(input.job(), 0);
    announce(input);
    return run_on_hosts(placement, arguments, input, rank_words);
  }
  check_surroundings(input.job(), ranks);
  if (const CoreBinding binding(options); binding.wanted())
    binding.cores_of(ranks - 1, ranks, usable_cores());
  if (job) log::info("Slurm job {}: {} rank{} on this node", job->id, ranks, ranks == 1 ? "" : "s");
  announce(input);
  // Only a rank in a process of its own can be started again.
  const bool alone = ranks == 1 && options.max_restarts == 0;
  if (options.dry_run)
    return show(alone ? RankCommand{own_command(to_start(rank_words)), {}}
                      : mpirun_command(ranks, own_command(to_start(rank_words)), "SESSION"));
  if (alone) return run_alone(input, options);
  log::info("launcher local: {} ranks on this machine, started by mpirun", ranks);
  return launch(input.job(), options, rank_words, [&](const std::vector<std::string>& all) {
    return start_ranks(input.job(), options, all);
  });
}

}  // namespace dstrain
