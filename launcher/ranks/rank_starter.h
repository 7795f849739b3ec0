// RankStarter: starts the ranks of one machine, and stands where mpirun does on several: it ends the others
// when a rank fails, passes signals on, and says how the first one failed by its exit status and a line
// like Open MPI's. Ranks are forks of it: what is loaded, read and checked before is theirs too. Stands on
// Linux. Invariant: no rank outlives it, however it ends.
#pragma once

#include <functional>

#include "runtime/core/rank_board.h"

namespace dstrain {

// What messages call it.
inline constexpr const char* kRankStarter = "the rank starter";

// The command that runs it as a program of its own: `dstrain rank_starter N WORDS...`, the words being those
// of each rank.
inline constexpr const char* kRankStarterCommand = "rank_starter";

// Starts `ranks` processes, which the variables of comm/communicator.h tell their places, and waits for
// all of them. In a rank it returns what `rank` returns; in the starter 0 where every rank did, else the
// exit status of the first that did not, or 128 + n where signal n ended it. Says on `board`, if there is
// one, at once who they are. Blocks signals: for a process without threads that does nothing else.
// Throws RunError where a rank cannot be started.
int start_ranks_here(int ranks, const std::function<int()>& rank, const RankBoard* board = nullptr);

}  // namespace dstrain
