// Hostfile: the hosts of a run and how many ranks each takes, as DeepSpeed and Open MPI write them: a
// line 'NAME slots=N' for each host; blank lines and what follows '#' are skipped. Invariant: every
// name can stand in a command as data and nothing else, and is there once.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dstrain {

struct HostEntry {
  std::string name;
  int slots = 0;  // 0: the host takes no rank
  int line = 0;   // from 1; 0 where no file names it
};

struct Hostfile {
  std::string path;  // as messages name it
  std::vector<HostEntry> hosts;
  std::vector<std::string> warnings;  // text that is ignored, as DeepSpeed ignores it, and where
};

// Why `name` cannot be a host's name ("begins with '-'"); empty where it can. Names are letters,
// digits, '.', '-' and '_', with no '-' or '.' in front: what every program takes as a name.
std::string host_name_problem(std::string_view name);

// Reads `text`; `path` is for messages. Throws UserError with file and line.
Hostfile parse_hostfile(std::string_view text, const std::string& path);

// Reads a file or pipe. Throws UserError.
Hostfile read_hostfile(const std::string& path);

}  // namespace dstrain
