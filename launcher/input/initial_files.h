// The files of the weights and of the optimizer's state that a run begins with.
#pragma once

#include <string>
#include <vector>

#include "runtime/config/job.h"

namespace dstrain {

struct InitialFile {
  std::string path;
  std::string name;  // "initial weights", which hosts and ranks have in common where paths differ
  const char* what;  // in messages: "the weights file"
};

// Returns the files of the first weights, then those of the first adapters, then those of the optimizer's state. Empty if the
// job resumes a run, whose checkpoint has all, or begins with fresh ones. Throws UserError for an index of weights or a state
// that cannot be read.
std::vector<InitialFile> initial_files(const Job& job);

}  // namespace dstrain
