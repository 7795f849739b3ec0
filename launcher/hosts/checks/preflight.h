// The preflight checks: what all hosts are asked before ranks start. Each question goes to all hosts at once and has a
// timeout. Invariant: a host that does not answer delays the checks by one timeout only.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launcher/connection/network.h"
#include "launcher/hosts/agent_view.h"
#include "launcher/hosts/checks/findings.h"
#include "launcher/hosts/checks/host_facts.h"

namespace dstrain {

// The facts about a run that its hosts are checked for: what they must agree on, and what the run needs of them.
// NOLINTNEXTLINE(bugprone-exception-escape): an empty json allocates nothing
struct PreflightQuestions {
  std::string run;                 // the name of the run
  std::string program_checksum;    // of this program
  std::vector<std::string> words;  // the command line; empty: input is not checked
  int64_t world = 1;               // ranks of the run
  nlohmann::json files;            // input_files() on this host
  std::string device;              // of the run
  // Throws UserError if `ranks` ranks do not fit into `bytes` of a host's memory. Null: memory is not checked.
  std::function<void(int ranks, int64_t bytes, const std::string& source)> check_memory;
  std::string master_address;            // numeric, of the first host; empty: any address will do
  PortRange ports;                       // at which the run listens; none: at any
  std::string output;                    // the output directory, absolute; empty: not checked
  double contact_seconds = 15;           // the timeout of the first answer
  double seconds = 15;                   // the timeout of each further answer
  int64_t silence_ns = kLongestSilence;  // after which agents take this process for lost
};

// The result of the preflight checks: the properties of the hosts that answered, and the problems that were found.
struct PreflightResult {
  std::vector<HostFacts> facts;
  std::vector<Finding> findings;
  std::string network;  // of the master_address; empty: any
  bool good() const;    // no finding is fatal
};

// Asks the agents of all hosts. The first host is that of rank 0.
PreflightResult preflight(std::span<const std::unique_ptr<AgentView>> hosts,
                          const PreflightQuestions& questions);

}  // namespace dstrain
