// The help as it is printed.
#pragma once

#include <string>
#include <vector>

#include "launcher/cli/help/command_help.h"

namespace dstrain {

// The columns of the help where the terminal does not have fewer.
inline constexpr int kHelpColumns = 100;

// Return the help of a command, and that of the program: the commands, and the options of train, which needs no name.
// Lines have at most `columns` characters, unless a single word or the command line of an example is longer.
std::string help_text(const CommandHelp& help, int columns = kHelpColumns);
std::string overview_text(const CommandHelp& train, const std::vector<CommandHelp>& commands,
                          int columns = kHelpColumns);

// What the overview and the manual page say of every command.
inline constexpr const char* kProgramDoes =
    "dstrain trains a model from a DeepSpeed ds_config.json, on the ranks of this machine or of "
    "several hosts, and says before it does what a step computes, sends and holds.";
inline constexpr const char* kExitStatus =
    "0 done; 1 wrong input or configuration; 2 failed while running; 128+n ended by signal n.";

}  // namespace dstrain
