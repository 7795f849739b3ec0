// The command lines of what says something about a configuration before it trains.
#pragma once

#include <string>
#include <vector>

#include "launcher/cli/arguments.h"

namespace dstrain {

// Parse the words after `plan`, `verify`, `check` and `estimate`. Throw UserError.
Arguments parse_plan(const std::vector<std::string>& words, const ModelRegistry& models);
Arguments parse_verify(const std::vector<std::string>& words, const ModelRegistry& models);
Arguments parse_check(const std::vector<std::string>& words, const ModelRegistry& models);
Arguments parse_estimate(const std::vector<std::string>& words, const ModelRegistry& models);

}  // namespace dstrain
