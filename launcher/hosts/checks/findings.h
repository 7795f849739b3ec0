// Findings: the problems that the preflight checks have found on hosts.
#pragma once

#include <string>
#include <vector>

namespace dstrain {

// A problem that the preflight checks have found on a host.
struct Finding {
  std::string host;
  std::string check;  // "ssh", "version", "host", "input", "device", "memory", "files",
                      // "clock", "openmpi", "output", "network"
  bool fatal = true;  // the run cannot start; false: a warning
  std::string text;   // what is wrong, and what to do
};

// Returns a line for each finding, indented by two blanks: host, check, text.
std::string findings_text(const std::vector<Finding>& findings);

// Returns the verdict of `dstrain doctor` on hosts, a line: whether a run of so many ranks could start on them.
std::string hosts_verdict(const std::vector<Finding>& findings, int ranks, size_t hosts);

}  // namespace dstrain
