// The front for several hosts: ranks that mpirun starts over ssh, supervised through an agent on each host.
#pragma once

#include <string>
#include <vector>

#include "launcher/cli/arguments.h"
#include "launcher/input/run_input.h"
#include "launcher/placement/resources.h"

namespace dstrain {

// Returns whether this front runs the placement: it has several hosts, its host is another machine, or the options ask
// for it. Throws UserError if the options ask for this machine only and there are several hosts.
bool on_hosts(const Placement& placement, const LaunchOptions& options);

// Starts the ranks with the command line `words` on the hosts of the placement and supervises them. Returns the exit
// status.
int run_on_hosts(const Placement& placement, const TrainArguments& arguments, const RunInput& input,
                 const std::vector<std::string>& words);

}  // namespace dstrain
