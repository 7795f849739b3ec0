// A node other than node 0 of hosts that were started by hand (--no_ssh). It connects to node 0, and runs the programs
// that ssh would run for it otherwise, until node 0 says that the run has ended. Invariant: a program is run only for a
// process that knows the token that this node told node 0.
#pragma once

#include <string>

#include "launcher/cli/launch_options.h"

namespace dstrain {

// `slots`: the ranks of this node. `secret`: that node 0 must know; empty: none. Returns the exit status of the run. Throws UserError if node 0 refuses this node,
// and RunError if it cannot be reached or its connection ends.
int serve_node(const LaunchOptions& options, int slots, const std::string& secret);

}  // namespace dstrain
