#include "launcher/hosts/start/hosts_run.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "launcher/hosts/start/agents.h"
#include "launcher/hosts/start/mpirun_command.h"
#include "launcher/hosts/start/name_wait.h"
#include "launcher/hosts/start/run_questions.h"
#include "launcher/output/rank_log.h"
#include "launcher/output/rank_output.h"
#include "launcher/placement/gpus.h"
#include "launcher/placement/machine.h"
#include "launcher/process/program_path.h"
#include "launcher/ranks/rank_environment.h"
#include "launcher/ranks/run_directory.h"
#include "launcher/ranks/run_processes.h"
#include "launcher/supervise/supervisor.h"
#include "runtime/core/error.h"
#include "runtime/core/log/log.h"
#include "runtime/storage/output_lock.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

using nlohmann::json;

// Open MPI's directory of the run on this machine. Removes the run's files, and kills processes of it that are left here.
class LocalFiles {
 public:
  explicit LocalFiles(const std::string& run) : run_(run) {
    ::mkdir(mpi_directory(run_).c_str(), 0700);
  }
  LocalFiles(const LocalFiles&) = delete;
  LocalFiles& operator=(const LocalFiles&) = delete;
  ~LocalFiles() {
    kill_run(run_);
    remove_run_files(run_);
  }

 private:
  std::string run_;
};

// Logs the warnings. Throws HostsNotReady for the other findings.
void check_findings(const PreflightResult& result, size_t hosts) {
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

// Returns the threads of a rank: the smallest number of cores that a host has for each of its ranks.
int threads_on(const std::vector<HostRanks>& hosts, const std::vector<HostFacts>& facts) {
  int64_t least = 1024;
  for (const HostRanks& host : hosts)
    for (const HostFacts& f : facts)
      if (f.host == host.host) least = std::min(least, f.cores / host.ranks());
  return static_cast<int>(std::max<int64_t>(1, least));
}

// Starts an agent on this machine, which has no ranks. It clears the machine of the run if this process is killed.
std::unique_ptr<AgentView> start_local_agent(const PreflightQuestions& questions,
                                             const SshOptions& ssh) {
  std::vector<std::unique_ptr<AgentView>> agent;
  agent.push_back(std::make_unique<AgentView>(
      host_name(), agent_command("localhost", ssh, own_command({}).front()), std::vector<int>(),
      questions.silence_ns));
  const auto answers = ask_all(agent, "hello", questions.seconds, [&](size_t) {
    return json{{"do", "hello"}, {"run", questions.run}, {"silence_ns", questions.silence_ns}};
  });
  if (answers.front().is_null()) fail_run("cannot start an agent on this machine");
  HostFacts facts;
  answers.front().get_to(facts);
  if (const std::string lack = lack_of_room(facts.room, 0); !lack.empty())
    throw HostsNotReady(fmt::format("this machine ({}) is not ready: {}", host_name(), lack),
                        {host_name()});
  return std::move(agent.front());
}

}  // namespace

MpirunOptions HostsRun::mpirun_options() const {
  MpirunOptions start;
  start.run = new_run_name();
  start.ssh = ssh_options(arguments_.launch);
  start.launcher_args = arguments_.launch.launcher_args;
  start.exported = rank_environment(environment_sources(arguments_.launch.exports)).variables;
  if (!arguments_.launch.rank_log_dir.empty()) {
    const std::string prefix = rank_log_prefix(arguments_.launch.rank_log_dir);
    for (auto& variable : rank_log_environment(prefix)) start.exported.push_back(variable);
  }
  if (const std::string gpus = gpus_text(placement_.hosts); !gpus.empty())
    start.exported.emplace_back(kGpusVariable, gpus);
  if (const char* const holder = std::getenv(kOutputHolderVariable))
    start.exported.emplace_back(kOutputHolderVariable, holder);
  for (auto& variable : progress_environment(STDERR_FILENO))
    start.exported.push_back(std::move(variable));
  start.directory = working_directory();
  if (arguments_.launch.no_ssh)
    start.ports =
        ports_from(meeting_port(arguments_.launch), most_ranks(placement_.hosts), kMeetingPorts);
  else if (arguments_.launch.master_port)
    start.ports = ports_from(*arguments_.launch.master_port, most_ranks(placement_.hosts));
  return start;
}

RankCommand HostsRun::command(const std::vector<std::string>& words) const {
  MpirunOptions start = mpirun_options();
  if (!arguments_.launch.master_addr.empty())  // only the first host knows the length of its prefix
    start.network = "NETWORK-OF-" + master_address(arguments_.launch);
  return mpirun_on_hosts(placement_.hosts, start, own_command(words));
}

StartOutcome HostsRun::start(const std::vector<std::string>& words) const {
  const std::vector<HostRanks>& hosts = placement_.hosts;
  MpirunOptions start = mpirun_options();
  // Before the agents run, because it may take long.
  PreflightQuestions questions = questions_about(input_, arguments_.request.path, words);
  questions.run = start.run;
  add_option_questions(questions, arguments_.launch, placement_.hosts);
  std::vector<std::string> lacking;
  if (const std::string lack = lack_of_addresses(placement_, arguments_.launch, start.ssh, lacking);
      !lack.empty())
    throw HostsNotReady(lack, lacking);
  std::vector<std::unique_ptr<AgentView>> agents =
      start_agents(hosts, start.ssh, questions.silence_ns);
  const PreflightResult result = preflight(agents, questions);
  check_findings(result, hosts.size());
  const StartedAgents end_on_failure(agents);
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

  if (std::ranges::none_of(hosts, [](const HostRanks& h) { return is_this_machine(h.host); }))
    agents.push_back(start_local_agent(questions, start.ssh));
  const LocalFiles files(start.run);
  const RankCommand command = mpirun_on_hosts(hosts, start, own_command(words));
  RankBoard requests = RankBoard::create(world);
  SupervisedRun run{.board = requests,
                    .hosts = {},
                    .host_of_rank = {},
                    .command = command.words,
                    .starter_log = (fs::path(input_.job().output) / "mpirun.log").string(),
                    .environment = command.environment,
                    .time_stamps = arguments_.launch.log_time,
                    .timeouts = {.instruction = input_.job().timeout_s * 1'000'000'000}};
  for (const HostRanks& host : hosts)
    run.host_of_rank.insert(run.host_of_rank.end(), static_cast<size_t>(host.ranks()), host.host);
  for (auto& agent : agents) run.hosts.push_back(std::move(agent));
  RunReport report = Supervisor(std::move(run)).run();
  return {std::move(report), requests.stop_request() != 0};
}

}  // namespace dstrain
