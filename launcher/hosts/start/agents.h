// Starts the agents on the hosts of a run.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "launcher/cli/launch_options.h"
#include "launcher/hosts/agent_view.h"
#include "launcher/hosts/ssh.h"
#include "launcher/placement/resources.h"

namespace dstrain {

// Seconds for the first answer of a host with --no_ssh_check.
inline constexpr int kLongContact = 60;

// Returns how the options reach other hosts.
SshOptions ssh_options(const LaunchOptions& options);

// Returns the command that starts the agent on `host`: directly if that is this machine, else by ssh. `program`: the
// path of dstrain.
std::vector<std::string> agent_command(const std::string& host, const SshOptions& ssh,
                                       const std::string& program);

// The agents of a run that has not begun to be supervised. If it does not come to that, they end with this object, and
// what they have made on their hosts is removed.
class StartedAgents {
 public:
  explicit StartedAgents(std::vector<std::unique_ptr<AgentView>>& agents) : agents_(agents) {}
  StartedAgents(const StartedAgents&) = delete;
  StartedAgents& operator=(const StartedAgents&) = delete;
  ~StartedAgents();

 private:
  std::vector<std::unique_ptr<AgentView>>& agents_;
};

// Starts an agent on every host, without waiting for an answer. Throws UserError if this process may not open enough
// files.
std::vector<std::unique_ptr<AgentView>> start_agents(const std::vector<HostRanks>& hosts,
                                                     const SshOptions& ssh,
                                                     int64_t silence_ns = kLongestSilence);

}  // namespace dstrain
