// mpirun: the command that starts the ranks of one machine: with Open MPI, tuned for a quick start and a
// quiet log, or without it, by this program itself. Stands on child.h and core/cpu.h.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "launcher/child.h"

namespace dstrain {

// The executable `name` of a directory of PATH; empty where there is none.
std::string find_on_path(const std::string& name);

// This program and `words`.
std::vector<std::string> own_command(const std::vector<std::string>& words);

// What starts the ranks of this machine, as messages call it: "mpirun" where it is on PATH and this build
// has MPI, else kOwnStarter.
inline constexpr const char* kOwnStarter = "the rank starter";
std::string local_starter();

struct RankCommand {
  std::vector<std::string> words;  // [0] is the starter's path
  Environment environment;         // what it needs besides this process's environment
};

// local_starter() starting `ranks` copies of `program`, this program and its words; Open MPI keeps its
// files in `session`. Settings that the user's environment already has are left alone.
RankCommand start_command(int ranks, const std::vector<std::string>& program,
                          const std::filesystem::path& session);

// A fresh directory for mpirun's files, removed with the object, whatever is in it.
class SessionDirectory {
 public:
  SessionDirectory();
  SessionDirectory(const SessionDirectory&) = delete;
  SessionDirectory& operator=(const SessionDirectory&) = delete;
  ~SessionDirectory();
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace dstrain
