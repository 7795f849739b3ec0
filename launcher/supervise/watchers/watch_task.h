// WatchTask: the data that the watcher of a host gets when it starts: the hosts and ranks of the run, the board of its
// own host, and the address of the leader watcher. A watcher is `dstrain host_watch`, a process of its own beside the
// ranks that the user's mpirun or srun started, so that it can report a rank that is stopped or has ended.
#pragma once

#include <string>
#include <vector>

namespace dstrain {

struct WatchTask {
  int host = 0;                         // the watcher's own; 0 is rank 0's
  std::vector<std::string> names;       // of all hosts, for messages
  std::vector<std::vector<int>> ranks;  // of each host
  std::string board;                    // RankBoard::address() of the own host's board
  int64_t timeout_s = 600;              // after which a rank without progress counts as hung
  int64_t silence_s = 5;                // after which a silent host counts as lost
  // With several hosts: how the watchers connect to the leader, the watcher on host 0: the descriptor at which it
  // listens (on host 0; else -1), its addresses, its port, and the key by which watchers know each other.
  int listener = -1;
  std::vector<std::string> addresses;
  int port = 0;
  std::string key;
};

// Starts the watcher of this host in a POSIX session of its own. Of this process's descriptors it has standard error
// and the listener only. Returns once it watches and the watchers of all hosts have met, so that the end of any rank and the
// loss of any host is noticed from then on; after fifteen seconds without one of them in any case. Throws RunError.
void start_watcher(const WatchTask& task);

// Returns the task of this process. Throws UserError if start_watcher() did not start it.
WatchTask task_of_this_watcher();

}  // namespace dstrain
