// Runs the command of a command line: all of the program but main().
#pragma once

#include <string>
#include <vector>

namespace dstrain {

class ModelRegistry;

// Runs the command that `words`, the command line without the program's name, ask for, of a program that has `models`.
// Reports errors on standard error. Returns the exit status: 0 done; 1 wrong input or configuration; 2 a failure while
// running; 128+n ended by signal n.
int run(const std::vector<std::string>& words, const ModelRegistry& models) noexcept;

}  // namespace dstrain
