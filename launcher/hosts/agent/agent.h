// The agent: `dstrain host_agent`, which the launching process starts on each host of a run. It answers the preflight
// questions, then holds the rank board and the output pipes of the host's ranks, and reports what they do. Its messages
// are listed in hosts/agent_view.h. Invariant: when it ends, because it was told to, its connection ended, or the
// launching process's machine does not answer, no process of the run is left on its host.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace dstrain {

// The settings with which an agent reads the input of a run as a rank on its host would. They come from the launching
// process.
struct AgentInput {
  std::vector<std::string> words;  // the command line
  std::string directory;           // the current directory of the launching process
  int64_t ranks = 1;               // of the run
};

// The functions of other modules that an agent calls. Its caller passes them in, so that the agent depends on none of
// these modules.
struct AgentHooks {
  // Reads the input and returns {"files": [{"path", "hash"}], "device", "gpus": how many the host has for it}. Throws
  // UserError. Called in a thread of its own.
  std::function<nlohmann::json(const AgentInput& input)> read_input;
};

// Serves the launching process over standard input and output until the end of the run. `here`: the launching process
// is on this machine. Returns the exit status.
int run_agent(const AgentHooks& hooks, bool here);

}  // namespace dstrain
