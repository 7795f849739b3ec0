// How a rank joins the process that launched it. On one machine two environment variables tell a rank the addresses of
// the launching process's board and output pipes. On several hosts one variable holds the run's name, under which a
// rank finds those of the agent on its host. Invariant: a joined rank does not outlive its parent process, and a
// terminal's Ctrl-C reaches it through the board only.
#pragma once

#include <string>

#include "launcher/process/environment.h"
#include "runtime/core/rank_board.h"

namespace dstrain {

// The variable that holds the run's name if an agent watches each host.
inline constexpr const char* kRunVariable = "DSTRAIN_RUN";

// Returns the variables that tell ranks the board of this process and `output`, the address of its output pipes.
Environment link_environment(const RankBoard& board, const std::string& output);

// Returns whether a launching dstrain started this process as a rank.
bool launched_as_rank();

// Joins the launching process as `rank`: this process is killed when its parent ends, ignores the stop signals and
// SIGUSR2, writes to the launching process's pipes, and is marked as starting on the board, which is returned. Throws
// UserError if no launching process has started this one, and its variables are strays; RunError if that process cannot
// be reached.
RankBoard join_launcher(int rank);

}  // namespace dstrain
