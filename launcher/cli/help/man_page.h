// The manual page dstrain(1), in troff with the man macros.
#pragma once

#include <string>
#include <vector>

#include "launcher/cli/help/command_help.h"

namespace dstrain {

// Returns the page: all commands with their examples and options. `version`: of the program.
std::string man_page(const std::vector<CommandHelp>& commands, const std::string& version);

}  // namespace dstrain
