// RankEnvironment: the variables that every rank of a run gets, on whatever host. Stands on child.h.
// From weak to strong: what passes by itself (NCCL_*, UCX_*, OMPI_*, OMP_NUM_THREADS and what limits
// instruction sets), DeepSpeed's file .deepspeed_env in the home directory, then in the present one,
// then --export.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/ranks/child.h"

namespace dstrain {

// What the variables are made of.
struct EnvironmentSources {
  struct File {
    std::string path;  // for messages
    std::string text;  // NAME=VALUE lines
  };
  std::map<std::string, std::string> own;  // the launching process's variables
  std::vector<File> files;                 // later ones win
  std::vector<std::string> exports;        // NAME=VALUE, or NAME for one of `own`
};

struct RankEnvironment {
  Environment variables;              // each name once, ascending
  std::vector<std::string> warnings;  // values that look as if they were meant for a shell
};

// Letters, digits and _, no digit first.
bool is_variable_name(std::string_view name);

// Pure. Throws UserError: a bad line of a file (file and line), an exported name that has no value.
RankEnvironment rank_environment(const EnvironmentSources& sources);

// Open MPI's own settings (OMPI_MCA_*) and further words for mpirun stand unquoted in the commands that
// mpirun gives to ssh: throws UserError for one that a shell would not leave as it is. For runs on other
// hosts.
void check_for_ssh(const Environment& variables, const std::vector<std::string>& mpirun_words);

// This process's variables and its .deepspeed_env files ($DS_ENV_FILE is another name for them, or a
// path). Throws UserError where one cannot be read.
EnvironmentSources environment_sources(std::vector<std::string> exports);

// Starts this program again, in its place, with `words` where one of its variables is not as wanted:
// libraries read some of them at a program's start only. Throws RunError where that fails.
void take_environment(const Environment& variables, const std::vector<std::string>& words);

}  // namespace dstrain
