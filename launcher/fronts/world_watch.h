// WorldWatch: how ranks that the user's mpirun or srun started are watched. The ranks of a host share a board,
// and the first of them starts the host's watcher (launcher/supervise/watchers/host_watch.h). Where the watchers find that
// a rank has failed they say so, and this process ends with the status that they order. Stands on comm, the board
// and watch_task.h. Invariant: a watched process does not outlive the order to end by more than a second.
#pragma once

#include <atomic>
#include <optional>
#include <thread>

#include "runtime/comm/communicator.h"
#include "runtime/config/job.h"
#include "runtime/core/rank_board.h"

namespace dstrain {

class WorldWatch {
 public:
  // Collective. `job`: how long ranks and hosts may be silent. The communicator outlives the watch, and says on the
  // board from now on whom it waits for.
  WorldWatch(Communicator& comm, const Job& job);
  WorldWatch(const WorldWatch&) = delete;
  WorldWatch& operator=(const WorldWatch&) = delete;
  ~WorldWatch();

  // Of this host's ranks; this rank's slot says that it is starting.
  const RankBoard& board() const { return *board_; }

  // After this rank has failed and said so on the board: waits for the watcher's order to end this process, which
  // does not return. Returns after some seconds where no order comes.
  void await_order() const;

 private:
  void obey() const;

  Communicator& comm_;
  std::optional<RankBoard> board_;
  std::atomic<bool> over_{false};
  std::thread obedient_;
};

}  // namespace dstrain
