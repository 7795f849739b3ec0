// Names of commands that dstrain gives to itself and that users do not.
#pragma once

namespace dstrain {

// `dstrain rank_starter N WORDS...`: starts N ranks of this machine, each with WORDS as its command line.
inline constexpr const char* kRankStarterCommand = "rank_starter";

// `dstrain host_agent [here]`: the agent on a host of a run.
inline constexpr const char* kHostAgentCommand = "host_agent";

// `dstrain host_watch`: the watcher of a host's ranks that the user's mpirun or srun started.
inline constexpr const char* kHostWatchCommand = "host_watch";

// `dstrain relay HOST WORDS...`: takes the place of ssh between hosts that were started by hand.
inline constexpr const char* kRelayCommand = "relay";

// `dstrain relay_end`: the relay's other end, which runs the words.
inline constexpr const char* kRelayEndCommand = "relay_end";

}  // namespace dstrain
