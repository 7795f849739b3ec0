// `dstrain relay HOST WORDS...`: takes the place of ssh for hosts that were started by hand. A shell on the node runs
// the words, with this process's standard input and output, which nobody between the two can change. Standard error stays
// on the node.
#pragma once

#include <string>
#include <vector>

namespace dstrain {

// Returns 0 when the program on the node has closed its output, or 255 if the connection has ended before. Throws RunError
// if the node cannot be reached, or bytes arrive that it has not sent.
int relay(const std::vector<std::string>& words);

}  // namespace dstrain
