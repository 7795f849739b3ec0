// RankLink: how a rank and the process that launched it find each other. The launching process tells
// ranks by two environment variables where its board and its output are, or by one how to find those
// of the agent on their host; a rank joins early in main.
// Stands on core/rank_board.h. Invariant: a joined rank does not outlive mpirun or the launching
// process, and a terminal's Ctrl-C reaches it through the board alone.
#pragma once

#include <optional>
#include <string>

#include "launcher/ranks/child.h"
#include "runtime/core/rank_board.h"

namespace dstrain {

// The name of the variable that holds the run's name where an agent watches each host.
inline constexpr const char* kRunVariable = "DSTRAIN_RUN";

// What the launching process exports: its board, and the address of its RankOutput.
Environment link_environment(const RankBoard& board, const std::string& output);

// Whether this process was started as a rank by a launching dstrain.
bool launched_as_rank();

// Joins the launching process as `rank`: dies with its parent, leaves signals to the board, writes to
// the launcher's output, and says on the board that it is starting. Throws RunError where the launcher
// cannot be reached.
RankBoard join_launcher(int rank);

}  // namespace dstrain
