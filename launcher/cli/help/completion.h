// Programs for shells that complete dstrain's commands, options, the values of options that are known, and names of
// files where an option or a command takes them. They need nothing but the shell.
#pragma once

#include <string>
#include <vector>

#include "launcher/cli/help/command_help.h"

namespace dstrain {

// Return the completion for bash, to be sourced or put into bash-completion/completions; for zsh, a file of $fpath or to
// be sourced after compinit; and for fish, to be sourced or put into vendor_completions.d. The first command is the one
// that needs no name.
std::string bash_completion(const std::vector<CommandHelp>& commands);
std::string zsh_completion(const std::vector<CommandHelp>& commands);
std::string fish_completion(const std::vector<CommandHelp>& commands);

// Returns the names of the commands, separated by `separator`.
std::string command_names(const std::vector<CommandHelp>& commands, const std::string& separator);

// Returns the known values, separated by blanks.
std::string known_words(const ValueHelp& value);

}  // namespace dstrain
