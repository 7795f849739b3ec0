// `dstrain relay HOST WORDS...`: what ssh does, for hosts that were started by hand: has a shell on the node run the
// words, with this process's standard input and output. What the program there writes to standard error stays there.
// Stands on node_link.h and sockets.
#pragma once

#include <string>
#include <vector>

namespace dstrain {

inline constexpr const char* kRelayCommand = "relay";

// Returns when the program there has closed its output. Throws RunError where the node cannot be reached.
int relay(const std::vector<std::string>& words);

}  // namespace dstrain
