// Paths of programs: this one's, and those on PATH. Also the directory in which this one works.
#pragma once

#include <string>
#include <vector>

namespace dstrain {

// Returns the path of the executable `name` in the first directory of PATH that has it; empty if none has.
std::string find_on_path(const std::string& name);

// Returns the command that runs this program with `words`.
std::vector<std::string> own_command(const std::vector<std::string>& words);

// Returns the current directory. Throws UserError if it has been removed, or its path is not UTF-8.
std::string working_directory();

}  // namespace dstrain
