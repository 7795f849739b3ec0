// Preflight: what is asked of all hosts before ranks start, each question of all hosts at once and with
// a deadline. Stands on AgentView. Invariant: a host that does not answer costs its deadline once.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launcher/hosts/agent_view.h"
#include "launcher/hosts/network.h"

namespace dstrain {

struct Finding {
  std::string host;
  std::string check;  // "ssh", "version", "host", "input", "memory", "files", "clock",
                      // "openmpi", "output", "network"
  bool fatal = true;
  std::string text;  // what is wrong, and what to do
};

// What is known of a host that answered.
struct HostFacts {
  std::string host;
  std::string version;
  int64_t cores = 0;
  int64_t memory_bytes = 0;
  std::string memory_source;
  double clock_ahead_s = 0;  // of this machine's
  std::vector<InterfaceAddress> addresses;
  std::string identity;  // the same for two names of one host; empty: unknown
};

// NOLINTNEXTLINE(bugprone-exception-escape): an empty json allocates nothing
struct PreflightQuestions {
  std::string run;                 // its name
  std::string program_checksum;    // of the dstrain here
  std::vector<std::string> words;  // the command line; empty: input is not looked at
  int64_t world = 1;               // ranks of the run
  nlohmann::json files;            // what it reads here: [{"path", "hash"}]
  // Whether `ranks` ranks fit into the memory of a host; throws UserError where they do not.
  std::function<void(int ranks, int64_t bytes, const std::string& source)> check_memory;
  std::string master_address;   // numeric, of the first host; empty: hosts meet at any address
  PortRange ports;              // where they listen; none: at any
  std::string output;           // absolute: where the run writes; empty: not looked at
  double contact_seconds = 15;  // the deadline of the first answer
  double seconds = 15;          // of each further question
  int64_t silence_ns = kLongestSilence;  // of this process, after which agents may take it for lost
};

struct PreflightResult {
  std::vector<HostFacts> facts;
  std::vector<Finding> findings;
  std::string network;  // that of the master_address; empty: any
  bool good() const;
};

PreflightResult preflight(std::span<const std::unique_ptr<AgentView>> hosts,
                          const PreflightQuestions& questions);

// A line for each finding, two blanks before it: host, check, text.
std::string findings_text(const std::vector<Finding>& findings);

// How many files a process that stands for so many others must be able to have open.
int64_t needed_open_files(int64_t others);

}  // namespace dstrain
