// The watcher of one host's ranks that the user's mpirun or srun started: `dstrain host_watch`. The watcher on rank 0's
// host is the leader: it watches its own ranks on their board and those of other hosts through their watchers. When a
// rank fails, it reports the root cause, once, and orders all ranks to end. A watcher that receives nothing more from
// the leader ends its host's ranks itself. Invariant: a watcher ends with the last rank of its host.
#pragma once

#include "launcher/supervise/watchers/watch_task.h"

namespace dstrain {

// Watches until the ranks have ended. Returns the exit status of the watcher, which no process reads.
int watch_host(const WatchTask& task);

}  // namespace dstrain
