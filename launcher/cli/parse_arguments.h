// The parser of the command line.
#pragma once

#include <string>
#include <vector>

#include "launcher/cli/arguments.h"

namespace dstrain {

// Parses `words`, the command line without the program's name. Throws UserError with one line: which word is wrong,
// what was expected, and for an unknown option or command the known name that is most like it.
// `models`: those that the program has, which requests refer to.
Arguments parse_arguments(const std::vector<std::string>& words, const ModelRegistry& models);

// Returns the help of every command for users, in the order in which the help of the program lists them.
std::vector<CommandHelp> command_helps(const ModelRegistry& models);

}  // namespace dstrain
