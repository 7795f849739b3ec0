// RankStarter: starts the ranks of one machine, as mpirun does on several hosts. It ends the other ranks when one
// fails, passes signals on to them, and reports the first failure by its exit status and a line like Open MPI's. Ranks
// are forks of it, so that they share what was loaded, read and checked before. Invariant: no rank outlives it, however
// it ends.
#pragma once

#include <functional>

#include "runtime/core/rank_board.h"

namespace dstrain {

// Its name in messages.
inline constexpr const char* kRankStarter = "the rank starter";

// Starts `ranks` forks of this process and waits for all of them. Each finds its rank in the environment variables of
// comm/communicator.h. In a fork this returns what `rank` returns. In this process it returns 0 if all ranks exited
// with 0, else the exit status of the first that did not, or 128 + n if signal n ended it. Writes the process ids to
// `board`, if there is one, as soon as they are known. Blocks signals; the caller must have no other threads. Throws
// RunError if a rank cannot be started.
int start_ranks_here(int ranks, const std::function<int()>& rank, const RankBoard* board = nullptr);

}  // namespace dstrain
