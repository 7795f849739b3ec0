// dstrain train: chooses the front. Without mpirun or srun this is the launching process: it checks the input, and then
// either trains itself as the only rank, or starts the ranks and supervises them. If the user's mpirun or srun started
// this process, it is one rank of that world.
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <memory>
#include <optional>

#include "launcher/commands/commands.h"
#include "launcher/connection/network.h"
#include "launcher/connection/secret.h"
#include "launcher/fronts/child_rank.h"
#include "launcher/fronts/foreign_ranks.h"
#include "launcher/fronts/hosts_front.h"
#include "launcher/fronts/local_front.h"
#include "launcher/fronts/rank_run.h"
#include "launcher/fronts/slurm_front.h"
#include "launcher/fronts/start_ranks.h"
#include "launcher/fronts/world_rank.h"
#include "launcher/input/defaults.h"
#include "launcher/input/output_folder.h"
#include "launcher/nodes/node_meeting.h"
#include "launcher/nodes/serve_node.h"
#include "launcher/placement/core_binding.h"
#include "launcher/placement/gpus.h"
#include "launcher/placement/machine.h"
#include "launcher/placement/process_limits.h"
#include "launcher/placement/ranges_text.h"
#include "launcher/process/failure.h"
#include "launcher/process/pid_file.h"
#include "launcher/process/program_path.h"
#include "launcher/process/stop_signals.h"
#include "launcher/ranks/rank_environment.h"
#include "launcher/ranks/rank_link.h"
#include "runtime/config/text.h"
#include "runtime/core/cpu.h"
#include "runtime/core/error.h"
#include "runtime/core/log/log.h"
#include "runtime/storage/weights/read_ahead.h"

namespace dstrain {
namespace {

bool started_by_mpirun() {
  return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr;
}

// Returns the placement of `ranks` ranks on this machine, for a run without a hostfile.
Placement placement_here(int ranks) {
  return {"", {{"localhost", first_numbers(ranks), 0}}, {}};
}

// Takes the lock of the run's output directory, and tells this process or the ranks that it starts who has it.
std::unique_ptr<OutputLock> take_output(const Job& job) {
  std::unique_ptr<OutputLock> lock = lock_output(job);
  ::setenv(kOutputHolderVariable, lock->holder().c_str(), 1);
  return lock;
}

// What the launching process knows of a run before it reads the input.
struct Launch {
  const TrainArguments& arguments;
  const std::vector<std::string>& words;
  const std::optional<SlurmJob>& job;
  const Placement& placement;
  NodeMeeting* nodes;                   // that of hosts without ssh, or null
  ConfigRequest request;                // with the number of ranks
  std::vector<std::string> rank_words;  // the command line of ranks
  bool filtered;                        // --include or --exclude
  bool several;                         // hosts

  bool becomes_srun() const { return job && needs_srun(*job, arguments.launch); }
};

std::unique_ptr<PidFile> write_pid() {
  auto file = std::make_unique<PidFile>();
  log::info("launcher pid: {}", ::getpid());
  return file;
}

// Reads the input, takes the output directory and trains. Returns the exit status. Throws OutputTaken, before anything has
// been started, if the directory that it has chosen is no longer free.
int read_and_start(const Launch& launch) {
  const auto& [arguments, words, job, placement, nodes, asked, words_of_ranks, filtered, several] =
      launch;
  const LaunchOptions& options = arguments.launch;
  ConfigRequest request = asked;
  std::vector<std::string> rank_words = words_of_ranks;
  const int ranks = static_cast<int>(*request.ranks);
  RunInput input = read_input(request, several ? RunsWhere::elsewhere : RunsWhere::here);
  if (nodes != nullptr) nodes->set_silence(input.job().silence_s);
  // Only a rank in a process of its own can be restarted.
  const bool alone = !several && ranks == 1 && options.max_restarts == 0;
  std::optional<ReadAhead> read_ahead;  // not where ranks are forked, from a process of one thread
  if (alone && !options.dry_run && !input.job().init_weights.empty() && input.job().resume.empty())
    read_ahead.emplace(input.job().init_weights);
  const size_t own_sets = request.sets.size();
  const bool fits = settle_to_fit(
      request, input.loaded,
      several
          ? std::nullopt
          : std::optional(RankMemory{available_memory().bytes, ranks, local_ranks(input.job())}));
  settle_steps(request, input.loaded, *input.dataset);
  const std::vector<std::string> defaults = default_lines(request.path, input.loaded);
  for (size_t i = own_sets; i < request.sets.size(); ++i)
    rank_words.insert(rank_words.end(), {"--set", request.sets[i]});
  if (!several && launch.becomes_srun())
    launch_by_srun(*job, options, ranks, static_cast<int>(arguments.request.ranks.value_or(0)),
                   words);
  // All ranks, and those of a restart, write to the directory that this process has chosen.
  if (input.job().output_by_default && !alone) {
    request.output = input.job().output;
    rank_words.push_back("--output=" + input.job().output);
  }
  refuse_if_used(input.job());
  const std::unique_ptr<PidFile> pid_file = options.save_pid ? write_pid() : nullptr;
  if (several) {
    check_surroundings(input, 0);
    const std::unique_ptr<OutputLock> lock = take_output(input.job());
    announce(input, defaults);
    TrainArguments of_hosts = arguments;
    of_hosts.request.output = request.output;
    return run_on_hosts(placement, of_hosts, input, rank_words);
  }
  if (options.elastic)
    fail_user(
        "--elastic leaves out a host that failed, and all ranks are on this machine: leave it out");
  note_without_network(options, "ranks on one machine need no network");
  check_process_limits(ranks);
  check_surroundings(input, ranks, local_ranks(input.job()), fits);
  if (const CoreBinding binding(options); binding.wanted())
    binding.cores_of(ranks - 1, ranks, usable_cores());
  if (job) log::info("Slurm job {}: {} on this node", job->id, counted(ranks, "rank"));
  const std::unique_ptr<OutputLock> lock = options.dry_run ? nullptr : take_output(input.job());
  announce(input, defaults);
  if (!options.launcher_args.empty())
    log::info("--launcher_args has no effect: dstrain starts the ranks of one machine itself");
  if (options.dry_run)
    return print_dry_run(
        placement.hostfile.empty() && !filtered ? placement_here(ranks) : placement,
        alone ? RankCommand{own_command(without_dry_run(rank_words)), {}}
              : local_command(input.job(), without_dry_run(rank_words)));
  if (const std::string gpus = filtered ? gpus_text(placement.hosts) : ""; !gpus.empty())
    ::setenv(kGpusVariable, gpus.c_str(), 1);  // for this process or the ranks that it starts
  read_ahead.reset();
  if (alone) return run_alone(input, options);
  return run_local_ranks(input, {.request = request, .launch = options}, rank_words);
}

// Runs this process as the launching process of ranks with this placement. `nodes`: that of hosts without ssh, or null.
// Returns the exit status.
int launch(const TrainArguments& arguments, const std::vector<std::string>& words,
           const std::optional<SlurmJob>& job, const Placement& placement,
           const std::string& secret, NodeMeeting* nodes = nullptr) {
  const LaunchOptions& options = arguments.launch;
  ConfigRequest request = arguments.request;
  std::vector<std::string> rank_words = words;
  if (job) {
    settle_ranks(*job, request);
    const std::string requeued = resume_after_requeue(*job, request);
    if (!requeued.empty()) log::info("{}", requeued);
    rank_words = words_resuming(words, request.resume.value_or(""));
  }
  const bool filtered = !options.hosts.include.empty() || !options.hosts.exclude.empty();
  if (options.front == Front::none) request.ranks = 1;
  if (placement.hostfile.empty() && !filtered) {
    settle_ranks(request);
  } else {
    request.ranks = placement.ranks();
    request.ranks_origin = !placement.hostfile.empty()     ? placement.hostfile
                           : options.hosts.include.empty() ? "--exclude"
                                                           : "--include";
  }
  const RankEnvironment environment = rank_environment(environment_sources(options.exports));
  const bool several = on_hosts(placement, options);
  const Launch start{.arguments = arguments,
                     .words = words,
                     .job = job,
                     .placement = placement,
                     .nodes = nodes,
                     .request = request,
                     .rank_words = rank_words,
                     .filtered = filtered,
                     .several = several};
  // The tasks of srun take it from there.
  if (start.becomes_srun() && !several && options.secret_file.empty() && !secret.empty())
    ::setenv(kSecretVariable, secret.c_str(), 1);
  if (!secret.empty() && !options.no_ssh && (several || !start.becomes_srun()))
    log::info("the secret has no effect: {}", several
                                                  ? "what hosts tell each other is carried by ssh"
                                                  : "ranks on one machine need no network");
  if (!several) ensure_environment(environment.variables, words);
  for (const std::string& warning : placement.warnings) log::warn("{}", warning);
  for (const std::string& warning : environment.warnings) log::warn("{}", warning);
  for (;;) {
    try {
      return read_and_start(start);
    } catch (const OutputTaken&) {
      // Another start has taken the directory meanwhile: there is a next one.
    }
  }
}

}  // namespace

int run_train(const TrainArguments& arguments, const std::vector<std::string>& words) {
  const LaunchOptions& options = arguments.launch;
  // --dry_run prints text for a shell on standard output, which log lines would mix with.
  if (options.quiet || options.dry_run) log::set_least(log::Level::warning);
  log::set_time_stamps(options.log_time);
  if (launched_as_rank()) {
    ::unsetenv(kSecretVariable);
    return run_launched_rank(arguments);
  }
  const std::string secret = take_secret(options.secret_file);
  // A shell lets what a script starts in the background ignore SIGINT, which asks a run to stop nevertheless.
  std::signal(SIGINT, SIG_DFL);
  receive_stop_signals();
  std::signal(SIGPIPE, SIG_IGN);  // a run goes on if the reader of its output has gone
  const std::optional<SlurmJob> job = started_by_mpirun() ? std::nullopt : slurm_front(options);
  if (job && is_rank_of_srun(*job)) {
    if (!job->task->pmix && job->task->rank != 0) return 1;  // rank 0 reports the error
    export_task_place(*job->task);
    return run_world_rank(arguments, job, secret);
  }
  if (started_by_mpirun()) return run_world_rank(arguments, job, secret);
  say_what_stop_signals_end();
  refuse_contradictions(options);
  refuse_foreign_ranks(options);
  std::optional<NodeMeeting> nodes;
  if (options.no_ssh) {
    const auto slots =
        static_cast<int>(options.hosts.slots_each.value_or(local_slots().by_default));
    ports_from(meeting_port(options), slots, kMeetingPorts);  // checks them before the wait
    if (secret.empty())
      log::warn(
          "without a secret whoever reaches port {} of {} can join the run as a node, and whoever "
          "reads what nodes tell each other can run programs on them: give all nodes the same "
          "--secret_file",
          meeting_port(options), options.master_addr);
    if (*options.node_rank > 0) return serve_node(options, slots, secret);
    nodes.emplace(options, slots, secret);
  }
  if (!nodes)
    return launch(arguments, words, job,
                  options.front == Front::none ? placement_here(1)
                                               : place_ranks(options.hosts, local_slots()),
                  secret);
  try {
    return nodes->end(launch(arguments, words, job, nodes->placement(), secret, &*nodes));
  } catch (...) {
    nodes->end(current_failure().exit_status());
    throw;
  }
}

}  // namespace dstrain
