#include "launcher/fronts/world_rank.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <memory>
#include <thread>

#include "launcher/fronts/rank_run.h"
#include "launcher/fronts/slurm_front.h"
#include "launcher/fronts/start_deadline.h"
#include "launcher/fronts/world_watch.h"
#include "launcher/input/defaults.h"
#include "launcher/input/fit_to_memory.h"
#include "launcher/input/output_folder.h"
#include "launcher/input/same_input.h"
#include "launcher/placement/machine.h"
#include "launcher/placement/process_limits.h"
#include "launcher/process/failure.h"
#include "launcher/process/stop_signals.h"
#include "runtime/comm/world_environment.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/core/log/log.h"
#include "runtime/plan/settings/open_settings.h"

namespace dstrain {
namespace {

// How long a rank waits until rank 0 has reported an error that both have, and mpirun has ended the ranks.
constexpr std::chrono::seconds kReportDelay{2};

// Refuses the options that need a launching process.
void refuse_without_launcher(const LaunchOptions& options, const std::string& starter) {
  if (options.front == Front::none)
    fail_user(
        "--launcher none trains on one rank alone, and {} started this process as a rank of its "
        "own: start dstrain without {}, or leave --launcher out",
        starter, starter);
  if (options.save_pid)
    fail_user("--save_pid names a launching dstrain, and {} started the ranks: leave it out",
              starter);
  if (options.max_restarts > 0)
    fail_user(
        "--max_restarts needs a launching dstrain, and {} started the ranks: start dstrain "
        "without {}, or leave it out",
        starter, starter);
}

// Says what becomes of the options that choose the network between hosts.
void note_network_of_ranks(const LaunchOptions& options, const std::string& starter) {
  if (!options.master_addr.empty())
    log::info(
        "--master_addr chooses where the watchers of several hosts meet; {} tells the ranks where "
        "the others are",
        starter);
  if (options.master_port)
    log::info("--master_port has no effect: {} tells the ranks where the others are", starter);
}

// Returns the lowest rank that has failed, if any. Collective.
std::optional<int> first_failed(Communicator& comm, bool failed) {
  const double mine = failed ? 1 : 0;
  std::vector<double> all(static_cast<size_t>(comm.size()));
  comm.gather_values({&mine, 1}, all);
  const auto first = std::ranges::find(all, 1.0);
  if (first == all.end()) return std::nullopt;
  return static_cast<int>(first - all.begin());
}

// Agrees on the smallest micro-batch that any rank found to fit its host's memory. Collective.
void agree_on_batch(Communicator& comm, LoadedConfig& loaded) {
  const auto mine = static_cast<double>(loaded.job.batch.micro_batch);
  std::vector<double> all(static_cast<size_t>(comm.size()));
  comm.gather_values({&mine, 1}, all);
  if (const double least = *std::ranges::min_element(all); least < mine)
    apply_micro_batch(loaded, static_cast<int64_t>(least), "what fits on every host");
}

// Gives all ranks what those of one host have settled, of what the file leaves open: that rows are gathered again, and the
// most pieces. Collective.
void agree_on_open(Communicator& comm, LoadedConfig& loaded) {
  Job settled = loaded.job;
  const std::array mine{settled.gather_again == GatherAgain::on ? 1.0 : 0.0,
                        static_cast<double>(settled.loss_chunks),
                        static_cast<double>(settled.mlp_chunks)};
  std::vector<double> all(mine.size() * static_cast<size_t>(comm.size()));
  comm.gather_values(mine, all);
  std::array<double, mine.size()> most{};
  for (size_t i = 0; i < all.size(); ++i)
    most[i % mine.size()] = std::max(most[i % mine.size()], all[i]);
  if (most[0] > mine[0]) settled.gather_again = GatherAgain::on;
  settled.loss_chunks = static_cast<int64_t>(most[1]);
  settled.mlp_chunks = static_cast<int64_t>(most[2]);
  apply_settled(loaded, settled);
}

// The output directory of a run for which none is named.
struct AgreedOutput {
  std::string line;                  // as SettledOutput's
  std::unique_ptr<OutputLock> lock;  // on rank 0
};

// Chooses the output directory and takes its lock, on rank 0. Another start may take a directory first: then it is the next
// one. Returns its number.
int64_t take_free_output(const LoadedConfig& asked, AgreedOutput& agreed) {
  for (;;) {
    LoadedConfig loaded = asked;
    const SettledOutput settled = settle_output(loaded);
    check_output_directory(loaded.job.output);
    try {
      agreed.lock = lock_output(loaded.job);
      agreed.line = settled.line;
      return settled.number;
    } catch (const OutputTaken&) {
      // The directory of the next round holds no results and is used by nobody, as of then.
    }
  }
}

// Gives all ranks the output directory that rank 0 chooses and locks. Throws UserError on all ranks if there is none.
// Collective.
AgreedOutput agree_on_output(Communicator& comm, int rank, const LoadedConfig& asked,
                             ConfigRequest& request) {
  AgreedOutput agreed;
  double number = 0;
  std::exception_ptr error;
  if (rank == 0) {
    try {
      number = static_cast<double>(take_free_output(asked, agreed));
    } catch (const UserError&) {
      error = std::current_exception();
    }
  }
  std::vector<double> all(static_cast<size_t>(comm.size()));
  comm.gather_values({&number, 1}, all);
  if (error) std::rethrow_exception(error);
  if (all[0] == 0) fail_user("rank 0 has no output directory");
  request.output = numbered_output(asked.job.output, static_cast<int64_t>(all[0]));
  return agreed;
}

// Reports that this rank could not read its input. Slurm does not end the other tasks of srun, and ranks that have
// connected wait for each other: all exchange whether they failed, one reports the error, and all end. `comm`: null if the
// ranks have not connected. Collective.
int fail_with_peers(const Failure& failure, int rank, std::unique_ptr<Communicator> comm) {
  if (!comm) comm = connect(1, Job{}, nullptr);
  if (first_failed(*comm, true) == rank) print_error(log::rank_mark(rank) + failure.text);
  comm->finish();
  return failure.exit_status();
}

}  // namespace

int run_world_rank(const TrainArguments& arguments, const std::optional<SlurmJob>& job,
                   const std::string& secret) {
  ConfigRequest request = arguments.request;
  const int rank = world_rank_from_environment();
  const int ranks = world_size_from_environment();
  const std::string starter = job ? "srun" : "mpirun";
  if (rank == 0) say_what_stop_signals_end();
  log::set_rank(rank);
  std::unique_ptr<Communicator> comm;
  bool input_is_read = false;       // by all ranks
  std::optional<WorldWatch> watch;  // must be destroyed before the communicator
  try {
    refuse_contradictions(arguments.launch);
    refuse_without_launcher(arguments.launch, starter);
    if (request.ranks && *request.ranks != ranks)
      fail_user("--num_gpus is {}, but {} started {}: leave --num_gpus out", *request.ranks,
                starter, counted(ranks, "rank"));
    request.ranks = ranks;
    request.ranks_origin = starter;
    const std::string requeued = job ? resume_after_requeue(*job, request) : "";
    const int ranks_here = ranks_on_this_host_from_environment();
    const int threads =
        bind_cores(arguments.launch, rank_on_this_host_from_environment(), ranks_here);
    if (rank_on_this_host_from_environment() == 0) check_process_limits(ranks_here);
    const auto join = [&](const Job& run) {
      const StartDeadline deadline(rank, run.timeout_s, starter);
      comm = connect(threads, run, nullptr);
    };
    AgreedOutput output;
    if (const LoadedConfig asked = load_config(request); asked.job.output_by_default) {
      join(asked.job);
      output = agree_on_output(*comm, rank, asked, request);
    }
    RunInput input = read_input(request);
    if (!output.line.empty()) input.output_line = output.line;
    const Job as_read = input.job();
    settle_to_fit(request, input.loaded, RankMemory{available_memory().bytes, ranks_here});
    if (rank == 0) {
      log::info("inside {}: {}, {} of them on this machine", starter, counted(ranks, "rank"),
                ranks_here);
      if (!output.lock) refuse_if_locked(input.job().output);
      check_surroundings(input, ranks_here);
      if (!output.lock) output.lock = lock_output(input.job());
      ::setenv(kOutputHolderVariable, output.lock->holder().c_str(), 1);
      if (!requeued.empty()) log::info("{}", requeued);
      note_network_of_ranks(arguments.launch, starter);
      const std::string model = model_line(request.path, input.loaded);
      announce(input, model.empty() ? std::vector<std::string>{} : std::vector{model});
    } else {
      if (input.texts.made) report_texts(input.texts);
      if (rank_on_this_host_from_environment() == 0) check_disks_here(input.job(), ranks_here);
    }
    const std::unique_ptr<RankLog> log_file = log_of(arguments.launch, rank);
    const bool exchanges = job || comm;
    if (!comm) join(input.job());
    if (exchanges && first_failed(*comm, false)) {
      comm->finish();
      return 1;
    }
    input_is_read = true;
    agree_on_open(*comm, input.loaded);
    if (input.loaded.default_batch) {
      agree_on_batch(*comm, input.loaded);
      settle_steps(request, input.loaded, *input.dataset);
      if (rank == 0) log::info("{}", batch_line(request.path, input.loaded));
    }
    const bool settled = !settled_between(as_read, input.job()).empty();
    if (rank == 0)
      for (const std::string& line : settled_lines(request.path, input.loaded))
        log::info("{}", line);
    if (ranks > 1 && (input.loaded.default_batch || settled))
      input.facts = input_facts(input.job(), *input.dataset);
    if (const std::string other = difference_of_input(*comm, input.facts); !other.empty()) {
      if (rank == 0) print_error(other);
      comm->finish();
      return 1;
    }
    watch.emplace(*comm, input.job(), secret, arguments.launch.master_addr);
    const StopSignals signals(watch->board(), StopSignals::Note::none,
                              StopSignals::Second::ends_process_later);
    return status_of(train_as(rank, input, *comm, watch->board(), threads));
  } catch (...) {
    const Failure failure = current_failure();
    if (!input_is_read && (job || comm)) return fail_with_peers(failure, rank, std::move(comm));
    if (watch) watch->board().fail(rank, failure.kind, failure.text);
    if (comm) comm->abort(failure.text);
    // The watchers report the root cause and end this process.
    if (watch) watch->wait_for_end_order();
    // Before there are watchers all ranks usually fail for the same input, and rank 0 reports it.
    if (!watch && rank != 0) std::this_thread::sleep_for(kReportDelay);
    print_error(log::rank_mark(rank) + failure.text);
    return failure.exit_status();
  }
}

}  // namespace dstrain
