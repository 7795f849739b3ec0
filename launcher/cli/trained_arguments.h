// The command lines of what is done with a trained model.
#pragma once

#include <string>
#include <vector>

#include "launcher/cli/arguments.h"

namespace dstrain {

// Parse the words after `generate` and `eval`. Throw UserError.
Arguments parse_generate(const std::vector<std::string>& words);
Arguments parse_eval(const std::vector<std::string>& words);

}  // namespace dstrain
