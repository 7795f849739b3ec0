// RankEnvironment: the environment variables that every rank of a run gets on every host. Their sources are, in
// ascending precedence: the launching process's own (NCCL_*, UCX_*, OMPI_*, OMP_NUM_THREADS, DSTRAIN_MAX_ISA),
// DeepSpeed's file .deepspeed_env in the home directory, the same file in the current directory, --export.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "launcher/process/environment.h"

namespace dstrain {

// The sources of the environment variables of ranks: this process, files, and --export.
struct EnvironmentSources {
  // The contents of a .deepspeed_env file.
  struct File {
    std::string path;  // for messages
    std::string text;  // NAME=VALUE lines
  };
  std::map<std::string, std::string> own;  // the launching process's variables
  std::vector<File> files;                 // later ones override earlier ones
  std::vector<std::string> exports;        // NAME=VALUE, or NAME for one of `own`
};

struct RankEnvironment {
  Environment variables;              // each name once, ascending
  std::vector<std::string> warnings;  // about values that look as if they were meant for a shell
};

// Returns the variables that `sources` give. Pure. Throws UserError for a malformed line of a file (with file and line)
// and for an exported name without a value.
RankEnvironment rank_environment(const EnvironmentSources& sources);

// Checks Open MPI's settings (OMPI_MCA_*) and the further words for mpirun, which mpirun puts unquoted into the
// commands that it gives to ssh. Throws UserError for one that a shell would change.
void check_for_ssh(const Environment& variables, const std::vector<std::string>& mpirun_words);

// Returns this process's variables, its .deepspeed_env files ($DS_ENV_FILE replaces their name, or is a path), and
// `exports`. Throws UserError if a file cannot be read, or $DS_ENV_FILE names none.
EnvironmentSources environment_sources(std::vector<std::string> exports);

// Makes sure that this process has `variables`: if one differs, executes this program again in this process, with
// `words`, because libraries read some variables only when a program starts. Throws RunError if that fails.
void ensure_environment(const Environment& variables, const std::vector<std::string>& words);

// Returns the number of threads of a rank with `cores` cores. `asked_for`: the threads that the user wants; 0: one for
// each core.
Environment thread_environment(int cores, int asked_for = 0);

}  // namespace dstrain
