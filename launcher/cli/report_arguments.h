// The command lines of what shows runs: report, compare and watch.
#pragma once

#include <string>
#include <vector>

#include "launcher/cli/arguments.h"

namespace dstrain {

// Parse the words after `report`, `compare` and `watch`. Throw UserError.
Arguments parse_report(const std::vector<std::string>& words);
Arguments parse_compare(const std::vector<std::string>& words);
Arguments parse_watch(const std::vector<std::string>& words);

}  // namespace dstrain
