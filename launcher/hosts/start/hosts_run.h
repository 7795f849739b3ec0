// HostsRun: one start of a run on several hosts: agents, preflight checks, mpirun, supervision.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "launcher/cli/arguments.h"
#include "launcher/hosts/start/mpirun_command.h"
#include "launcher/input/run_input.h"
#include "launcher/placement/resources.h"
#include "launcher/ranks/rank_command.h"
#include "launcher/supervise/restart.h"
#include "runtime/core/error.h"

namespace dstrain {

// The exception for a run that cannot start because hosts are not ready. It has the names of these hosts. Nothing was
// started.
class HostsNotReady : public UserError {
 public:
  HostsNotReady(const std::string& text, std::vector<std::string> hosts)
      : UserError(text), hosts_(std::move(hosts)) {}
  const std::vector<std::string>& hosts() const { return hosts_; }

 private:
  std::vector<std::string> hosts_;
};

class HostsRun {
 public:
  // The arguments must outlive this object.
  HostsRun(const Placement& placement, const TrainArguments& arguments, const RunInput& input)
      : placement_(placement), arguments_(arguments), input_(input) {}

  // Returns the command that starts the ranks with the command line `words`, for --dry_run.
  RankCommand command(const std::vector<std::string>& words) const;

  // Checks that the hosts are ready, starts the ranks with the command line `words`, and supervises them until all have
  // ended. Throws HostsNotReady.
  StartOutcome start(const std::vector<std::string>& words) const;

 private:
  MpirunOptions mpirun_options() const;

  const Placement& placement_;
  const TrainArguments& arguments_;
  const RunInput& input_;
};

}  // namespace dstrain
