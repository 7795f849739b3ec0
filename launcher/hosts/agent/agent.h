// Agent: `dstrain host_agent`, the launching process's hand on one host. It answers questions before
// the start, then holds the rank board and the output pipes of the host's ranks and reports what they
// do. Stands on channel.h, messages.h and BoardView. Invariant: when it ends, for whatever reason (told
// to, the connection gone, no answer from the launching machine), no process of the run is left on its
// host.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace dstrain {

// The input of a run as a rank finds it: the command line, where it was given, the ranks of the run.
struct AgentInput {
  std::vector<std::string> words;
  std::string directory;
  int64_t ranks = 1;
};

struct AgentHooks {
  // Reads it and returns {"files": [{"path", "hash"}]}. Throws UserError. Called in a thread of its own.
  std::function<nlohmann::json(const AgentInput& input)> read_input;
};

// Serves one launching process, which may be `here`, on this machine, over standard input and output until the
// end of the run; returns the exit status.
int run_agent(const AgentHooks& hooks, bool here);

}  // namespace dstrain
