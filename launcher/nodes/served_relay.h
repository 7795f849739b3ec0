// A relay's end on the node that was asked to run a command: `dstrain relay_end`, a process of its own, so that the
// command's bytes flow on while the node's own process is suspended.
#pragma once

#include <sys/types.h>

#include <string>

#include "launcher/connection/line_channel.h"

namespace dstrain {

// Starts the process, in a process group of its own. A shell in it runs `command`, whose standard input and output are
// carried over the socket `connection`, whose ends have proved to know a key, from which `keys` follow. The process ends
// after the command. Returns its process id. Throws RunError if there can be no further process.
pid_t start_relay_end(const std::string& command, const DirectionKeys& keys, int connection);

// Is that process. Returns its exit status, which nobody reads. Throws UserError if start_relay_end() did not start it.
int run_relay_end();

}  // namespace dstrain
