// Files that a run writes under names that others can foresee, in a directory where others may write, too: no symbolic
// link is followed, no file is written that has another name besides, and no pipe is waited for.
#pragma once

#include <string>

namespace dstrain {

struct OutputFile {
  int descriptor = -1;  // the caller must close it; -1: it could not be opened
  std::string problem;  // why, for the end of an error; empty if it could
};

// Opens the regular file at `path`, or makes it. `flags`: of open(), without O_CREAT.
OutputFile open_output_file(const std::string& path, int flags);

// Returns why a run could not write the file at `path`, which need not exist; empty if it could.
std::string output_file_problem(const std::string& path);

// Returns why this process could not make a file in the directory; empty if it could. Leaves nothing there, and removes
// the empty files that processes left there which were killed while they tried.
std::string new_file_problem(const std::string& directory);

}  // namespace dstrain
