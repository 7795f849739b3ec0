// The command line of init, which writes a configuration.
#pragma once

#include <string>
#include <vector>

#include "launcher/cli/arguments.h"

namespace dstrain {

// Parses the words after `init`. Throws UserError.
Arguments parse_init(const std::vector<std::string>& words, const ModelRegistry& models);

}  // namespace dstrain
