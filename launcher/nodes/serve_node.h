// A node of hosts that were started by hand (--no_ssh), but node 0: goes to node 0, and runs for it what ssh would run
// elsewhere, until node 0 says that the run has ended. Stands on sockets and node_link.h. Invariant: only who
// knows the word that this node told node 0 has a program run.
#pragma once

#include "launcher/cli/launch_options.h"

namespace dstrain {

// `slots`: ranks of this node. Returns the exit status of the run. Throws UserError where node 0 has no place for this
// node, RunError where it cannot be reached or is gone.
int serve_node(const LaunchOptions& options, int slots);

}  // namespace dstrain
