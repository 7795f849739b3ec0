// Removes what runs left on this host.
#pragma once

#include <string>

namespace dstrain {

// Removes the directories of runs that ended without removing them, beside those of `run` on this host: their private
// directories and Open MPI's. A run is alive while one of its processes or its agent is. An agent that is stopped
// (SIGSTOP), so that it cannot notice the end of its connection, is killed if the process that started it has ended.
void clear_dead_runs(const std::string& run);

// Kills the processes of a run whose launching process is lost, and removes the run's directories on this host; does so
// again a second later, because a daemon of Open MPI that was ordered before may start only now, by ssh or a relay.
void clear_lost_run(const std::string& run);

}  // namespace dstrain
