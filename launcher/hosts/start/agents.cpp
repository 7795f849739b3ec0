#include "launcher/hosts/start/agents.h"

#include <poll.h>

#include <algorithm>

#include "launcher/cli/command_names.h"
#include "launcher/hosts/checks/preflight.h"
#include "launcher/placement/machine.h"
#include "launcher/placement/process_limits.h"
#include "launcher/process/program_path.h"
#include "runtime/core/error.h"

namespace dstrain {

SshOptions ssh_options(const LaunchOptions& options) {
  SshOptions ssh;
  ssh.relay = options.no_ssh;
  ssh.port = options.ssh_port;
  if (options.no_ssh_check) ssh.connect_seconds = kLongContact;
  return ssh;
}

std::vector<std::string> agent_command(const std::string& host, const SshOptions& ssh,
                                       const std::string& program) {
  if (is_this_machine(host)) return {program, kHostAgentCommand, "here"};
  return ssh_command(ssh, host, {program, kHostAgentCommand});
}

std::vector<std::unique_ptr<AgentView>> start_agents(const std::vector<HostRanks>& hosts,
                                                     const SshOptions& ssh, int64_t silence_ns) {
  const ProcessNeeds needs = process_needs(0, 0, static_cast<int64_t>(hosts.size()));
  if (const auto lack = lacks(process_limits(), needs, "here"); !lack.empty())
    fail_user("{}", lack.front().text);
  std::vector<std::unique_ptr<AgentView>> agents;
  for (const HostRanks& host : hosts)
    agents.push_back(std::make_unique<AgentView>(
        host.host, agent_command(host.host, ssh, own_command({}).front()), host.all_ranks(),
        silence_ns));
  return agents;
}

StartedAgents::~StartedAgents() {
  constexpr int64_t kToEnd = 6'000'000'000;  // nanoseconds
  std::erase(agents_, nullptr);              // the supervisor has taken them
  for (const auto& agent : agents_) agent->end();
  const int64_t end = monotonic_ns() + kToEnd;
  const auto all_ended = [this] {
    return std::ranges::all_of(agents_, [](const auto& agent) { return agent->ended(); });
  };
  while (!all_ended() && monotonic_ns() < end) {
    ::poll(nullptr, 0, 20);
    for (const auto& agent : agents_) agent->update(false);
  }
}

}  // namespace dstrain
