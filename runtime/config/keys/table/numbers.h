// Which keys a run's numbers depend on: its losses, gradients and weights.
#pragma once

#include <string_view>

namespace dstrain {

// Returns whether no value of the key at the dotted path, or of a key below it, changes a number that a run computes: it
// decides on memory, messages, files or printing. Messages offer to ignore such keys alone. False for every key that is
// not known to be one.
bool changes_no_number(std::string_view key);

}  // namespace dstrain
