// WatchTask: what the watcher of one host is told when it is started: which hosts and ranks a run has, and where
// to find the board of its own host and the watcher of rank 0's. A watcher is `dstrain host_watch`, a process
// of its own beside the ranks that the user's mpirun or srun started, so that it can speak for a rank that is
// stopped or dead.
#pragma once

#include <string>
#include <vector>

namespace dstrain {

struct WatchTask {
  int host = 0;                         // its own; 0 is rank 0's
  std::vector<std::string> names;       // of the hosts, for messages
  std::vector<std::vector<int>> ranks;  // of each host
  std::string board;                    // RankBoard::address() of its own host's
  int64_t timeout_s = 600;              // after which a rank that does not move is at fault
  int64_t silence_s = 5;                // after which a host that says nothing is lost
  // Where host 0 has a watcher to report to: its descriptor to listen at (on host 0; else -1), addresses, port,
  // and the word that tells the run's watchers from other programs.
  int listener = -1;
  std::vector<std::string> addresses;
  int port = 0;
  std::string token;
};

// Starts the watcher: in a session of its own, with this process's standard error and nothing else that is open
// here but the listener. Returns once it watches, so that no rank can end unseen from then on. Throws RunError.
void start_watcher(const WatchTask& task);

// The task of this process. Throws UserError where it was not started by start_watcher().
WatchTask task_of_this_watcher();

}  // namespace dstrain
