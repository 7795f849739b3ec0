// Starting a run on the hosts of a placement: agents, preflight, mpirun, supervision. Stands on
// everything else in this folder.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "launcher/cli/arguments.h"
#include "launcher/cli/launch_options.h"
#include "launcher/hosts/checks/preflight.h"
#include "launcher/hosts/mpirun_command.h"
#include "launcher/input/run_input.h"
#include "launcher/placement/resources.h"
#include "launcher/supervise/restart.h"
#include "runtime/core/error.h"

namespace dstrain {

// What --ssh_port and --no_ssh_check say about ssh.
SshOptions ssh_options(const LaunchOptions& options);

// An agent on every host, being started. Throws UserError where this process may not open so many files.
std::vector<std::unique_ptr<AgentView>> start_agents(const std::vector<HostRanks>& hosts,
                                                     const SshOptions& ssh,
                                                     int64_t silence_ns = kLongestSilence);

// Preflight's questions about a run: its input as this process has read it, its memory. The input
// outlives them.
PreflightQuestions questions_about(const RunInput& input, const std::string& config,
                                   const std::vector<std::string>& words);

// What the options of a run add to the questions: its network and ports, and how long ssh may take. Throws
// UserError.
void ask_for(PreflightQuestions& questions, const LaunchOptions& options,
             const std::vector<HostRanks>& hosts);

// The checksums of what a run reads, its configuration file too: [{"path", "hash"}].
nlohmann::json input_files(const RunInput& input, const std::string& config);

// Hosts are not ready for a run; nothing was started.
class HostsNotReady : public UserError {
 public:
  HostsNotReady(const std::string& text, std::vector<std::string> hosts)
      : UserError(text), hosts_(std::move(hosts)) {}
  const std::vector<std::string>& hosts() const { return hosts_; }

 private:
  std::vector<std::string> hosts_;
};

// A run on the hosts of a placement. What it is made from outlives it.
class HostsRun {
 public:
  HostsRun(const Placement& placement, const TrainArguments& arguments, const RunInput& input)
      : placement_(placement), arguments_(arguments), input_(input) {}

  // What starts the ranks with the command line `words`, as --dry_run shows it.
  RankCommand command(const std::vector<std::string>& words) const;

  // Asks the hosts whether they are ready, starts the ranks there and supervises them until all are
  // gone. Throws HostsNotReady.
  StartOutcome start(const std::vector<std::string>& words) const;

 private:
  HostsStart plan_start() const;

  const Placement& placement_;
  const TrainArguments& arguments_;
  const RunInput& input_;
};

}  // namespace dstrain
