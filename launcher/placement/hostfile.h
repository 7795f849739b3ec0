// Hostfile: the hosts of a run and the number of ranks on each, in the format of DeepSpeed and Open MPI: a line
// 'NAME slots=N' for each host. Blank lines and text after '#' are skipped. Invariant: every name occurs once, and no
// program can take it for an option or shell syntax.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dstrain {

// One host of a hostfile and the number of ranks that it takes.
struct HostEntry {
  std::string name;
  int slots = 0;  // 0: the host takes no rank
  int line = 0;   // from 1; 0 if the host is not from a file
};

struct Hostfile {
  std::string path;  // as messages name it
  std::vector<HostEntry> hosts;
  std::vector<std::string> warnings;  // about text that is ignored, as DeepSpeed does
};

// Returns why `name` cannot be a host's name ("begins with '-'"); empty if it can. A name has letters, digits, '.', '-'
// and '_', and does not begin with '-' or '.', so that every program takes it for a name.
std::string host_name_error(std::string_view name);

// Parses `text`. `path` is for messages. Throws UserError with file and line.
Hostfile parse_hostfile(std::string_view text, const std::string& path);

// Reads and parses a file or pipe. Throws UserError.
Hostfile read_hostfile(const std::string& path);

}  // namespace dstrain
