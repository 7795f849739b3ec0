#include "launcher/hosts/hosts_run.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>

#include "launcher/hosts/agent/run_place.h"
#include "launcher/implementations.h"
#include "launcher/output/rank_log.h"
#include "launcher/output/rank_output.h"
#include "launcher/placement/machine.h"
#include "launcher/ranks/rank_environment.h"
#include "launcher/supervise/supervisor.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/core/log/log.h"
#include "runtime/plan/fit.h"
#include "runtime/storage/file_checksum.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

// Seconds for the first answer of a host with --no_ssh_check.
constexpr int kPatientContact = 60;
using nlohmann::json;

// What Open MPI leaves on this machine, and processes of the run here, go with it.
class LocalTraces {
 public:
  explicit LocalTraces(const std::string& run) : run_(run) {
    ::mkdir(mpi_directory(run_).c_str(), 0700);
  }
  LocalTraces(const LocalTraces&) = delete;
  LocalTraces& operator=(const LocalTraces&) = delete;
  ~LocalTraces() {
    kill_run(run_);
    std::error_code none;
    fs::remove_all(mpi_directory(run_), none);
  }

 private:
  std::string run_;
};

void judge(const PreflightResult& result, size_t hosts) {
  std::vector<Finding> fatal;
  for (const Finding& f : result.findings)
    if (f.fatal)
      fatal.push_back(f);
    else
      log::warn("{}: {}", f.host, f.text);
  if (result.good()) return;
  std::vector<std::string> names;
  for (const Finding& f : fatal)
    if (std::find(names.begin(), names.end(), f.host) == names.end()) names.push_back(f.host);
  const std::string which = hosts == 1 ? "the host is"
                                       : fmt::format("{} of {} hosts {}", names.size(), hosts,
                                                     names.size() == 1 ? "is" : "are");
  throw HostsNotReady(fmt::format("{} not ready:{}", which, findings_text(fatal)), names);
}

// OpenMP threads of a rank: the least that any host has for one.
int threads_on(const std::vector<HostRanks>& hosts, const std::vector<HostFacts>& facts) {
  int64_t least = 1024;
  for (const HostRanks& host : hosts)
    for (const HostFacts& f : facts)
      if (f.host == host.host) least = std::min(least, f.cores / host.ranks());
  return static_cast<int>(std::max<int64_t>(1, least));
}

int most_ranks(const std::vector<HostRanks>& hosts) {
  int most = 0;
  for (const HostRanks& host : hosts) most = std::max(most, host.ranks());
  return most;
}

// Numeric; empty where the options leave it open.
std::string master_address(const LaunchOptions& options) {
  return options.master_addr.empty() ? "" : address_of("--master_addr", options.master_addr);
}

}  // namespace

SshOptions ssh_options(const LaunchOptions& options) {
  SshOptions ssh;
  ssh.relay = options.no_ssh;
  ssh.port = options.ssh_port;
  if (options.no_ssh_check) ssh.connect_seconds = kPatientContact;
  return ssh;
}

std::vector<std::unique_ptr<AgentView>> start_agents(const std::vector<HostRanks>& hosts,
                                                     const SshOptions& ssh, int64_t silence_ns) {
  const int64_t needed = needed_open_files(static_cast<int64_t>(hosts.size()));
  if (open_files_limit() < needed)
    fail_user("a process may open {} files here, and {} need {}: raise the limit (ulimit -n {})",
              open_files_limit(), counted(static_cast<int64_t>(hosts.size()), "host"), needed,
              needed);
  std::vector<std::unique_ptr<AgentView>> agents;
  for (const HostRanks& host : hosts)
    agents.push_back(std::make_unique<AgentView>(
        host.host, agent_command(host.host, ssh, own_command({}).front()), host.all_ranks(),
        silence_ns));
  return agents;
}

json input_files(const RunInput& input, const std::string& config) {
  const Job& job = input.job();
  json files = json::array();
  for (const std::string& path : {config, job.data.path, job.init_weights})
    if (!path.empty()) files.push_back({{"path", path}, {"hash", file_checksum(path)}});
  return files;
}

PreflightQuestions questions_about(const RunInput& input, const std::string& config,
                                   const std::vector<std::string>& words) {
  PreflightQuestions questions;
  questions.program_checksum = file_checksum("/proc/self/exe");
  questions.words = words;
  questions.world = input.job().ranks;
  questions.files = input_files(input, config);
  questions.output = fs::absolute(input.job().output).lexically_normal().string();
  questions.silence_ns = input.job().silence_s * 1'000'000'000;
  questions.check_memory = [job = input.job(), needed = std::map<int, int64_t>()](
                               int ranks, int64_t bytes, const std::string& source) mutable {
    const auto [known, fresh] = needed.try_emplace(ranks);
    if (fresh) known->second = planned_bytes(job, plan_inputs(job, ranks)) + kProcessOverheadBytes;
    check_memory(known->second, ranks, bytes, source);
  };
  return questions;
}

void ask_for(PreflightQuestions& questions, const LaunchOptions& options,
             const std::vector<HostRanks>& hosts) {
  // Plans are made here, before agents are there to listen: a large one takes long.
  if (questions.check_memory)
    for (const HostRanks& host : hosts)
      questions.check_memory(host.ranks(), std::numeric_limits<int64_t>::max(), "");
  if (options.no_ssh_check) questions.contact_seconds = kPatientContact;
  questions.master_address = master_address(options);
  if (options.master_port) questions.ports = ports_from(*options.master_port, most_ranks(hosts));
}

HostsStart HostsRun::plan_start() const {
  HostsStart start;
  start.run = new_run_name();
  start.ssh = ssh_options(arguments_.launch);
  start.launcher_args = arguments_.launch.launcher_args;
  start.exported = rank_environment(environment_sources(arguments_.launch.exports)).variables;
  if (!arguments_.launch.rank_log_dir.empty()) {
    const std::string prefix = rank_log_prefix(arguments_.launch.rank_log_dir);
    for (auto& variable : rank_log_environment(prefix)) start.exported.push_back(variable);
  }
  for (auto& variable : progress_environment(STDERR_FILENO))
    start.exported.push_back(std::move(variable));
  start.directory = fs::current_path().string();
  if (arguments_.launch.no_ssh)  // where the hosts have met is taken
    start.ports = ports_from(meeting_port(arguments_.launch) + 1, most_ranks(placement_.hosts));
  else if (arguments_.launch.master_port)
    start.ports = ports_from(*arguments_.launch.master_port, most_ranks(placement_.hosts));
  return start;
}

RankCommand HostsRun::command(const std::vector<std::string>& words) const {
  HostsStart start = plan_start();
  if (!arguments_.launch.master_addr.empty())  // the first host knows how large it is
    start.network = "NETWORK-OF-" + master_address(arguments_.launch);
  return mpirun_on_hosts(placement_.hosts, start, own_command(words));
}

StartOutcome HostsRun::start(const std::vector<std::string>& words) const {
  const std::vector<HostRanks>& hosts = placement_.hosts;
  HostsStart start = plan_start();
  // What takes long comes before agents are there to listen.
  PreflightQuestions questions = questions_about(input_, arguments_.request.path, words);
  questions.run = start.run;
  ask_for(questions, arguments_.launch, placement_.hosts);
  std::vector<std::unique_ptr<AgentView>> agents =
      start_agents(hosts, start.ssh, questions.silence_ns);
  const PreflightResult result = preflight(agents, questions);
  judge(result, hosts.size());
  start.threads = threads_on(hosts, result.facts);
  start.network = result.network;

  const int world = placement_.ranks();
  const auto ready = ask_all(agents, "watching", questions.seconds, [&](size_t i) {
    return json{{"do", "watch"}, {"world", world}, {"ranks", hosts[i].all_ranks()}};
  });
  for (size_t i = 0; i < hosts.size(); ++i)
    if (ready[i].is_null())
      fail_run("{} cannot watch its ranks: {}", hosts[i].host,
               agents[i]->lost().empty() ? "its agent does not answer" : agents[i]->lost());

  const LocalTraces traces(start.run);
  const RankCommand command = mpirun_on_hosts(hosts, start, own_command(words));
  RankBoard requests = RankBoard::create(world);
  SupervisedRun run{.board = requests,
                    .hosts = {},
                    .host_of_rank = {},
                    .command = command.words,
                    .starter_log = (fs::path(input_.job().output) / "mpirun.log").string(),
                    .environment = command.environment,
                    .time_stamps = arguments_.launch.log_time,
                    .patience = {.instruction = input_.job().timeout_s * 1'000'000'000}};
  for (const HostRanks& host : hosts)
    run.host_of_rank.insert(run.host_of_rank.end(), static_cast<size_t>(host.ranks()), host.host);
  for (auto& agent : agents) run.hosts.push_back(std::move(agent));
  RunReport report = Supervisor(std::move(run)).run();
  return {std::move(report), requests.stop_request() != 0};
}

}  // namespace dstrain
