// RankCommand: a command that starts ranks, this program's own or mpirun. Stands on child.h and core/cpu.h.
#pragma once

#include <string>
#include <vector>

#include "launcher/ranks/child.h"

namespace dstrain {

// The executable `name` of a directory of PATH; empty where there is none.
std::string find_on_path(const std::string& name);

// This program and `words`.
std::vector<std::string> own_command(const std::vector<std::string>& words);

struct RankCommand {
  std::vector<std::string> words;  // [0] is the starter's path
  Environment environment;         // what it needs besides this process's environment
};

// The rank starter as a program of its own: it starts `ranks` copies of `program`, this program and its
// words, on this machine. Settings that the user's environment already has are left alone.
RankCommand starter_command(int ranks, const std::vector<std::string>& program);

}  // namespace dstrain
