// The watcher of one host's ranks, which the user's mpirun or srun started: `dstrain host_watch`. The watcher on
// rank 0's host judges: it sees its own ranks on their board and those of other hosts through their watchers, and
// when one fails names the culprit, once, and has all ranks end. A watcher that hears no more from the judge ends
// its host's ranks itself. Stands on RankWatch, PeerView and the board. Invariant: a watcher ends with the
// last rank of its host.
#pragma once

#include "launcher/supervise/watchers/watch_task.h"

namespace dstrain {

// Watches until the ranks have ended. Returns the exit status of the watcher, which nobody waits for.
int watch_host(const WatchTask& task);

}  // namespace dstrain
