// RankCommand: a command that starts ranks: this program or mpirun.
#pragma once

#include <string>
#include <vector>

#include "launcher/process/environment.h"

namespace dstrain {

struct RankCommand {
  std::vector<std::string> words;  // the first is the program's path
  Environment environment;         // added to this process's environment
};

// Returns the command that starts `ranks` copies of `program`, this program and its words, on this machine: the rank
// starter as a program of its own. Variables that this process has are not overridden.
RankCommand starter_command(int ranks, const std::vector<std::string>& program);

// Returns the command as a line for a shell: the added environment, and the words, quoted.
std::string command_text(const RankCommand& command);

}  // namespace dstrain
