// WorldWatch: connects a rank that the user's mpirun or srun started to the watcher of its host. The ranks of a host
// share a board, and the first of them starts the watcher (launcher/supervise/watchers/host_watch.h). When the watchers
// find that a rank has failed, they report it and order all ranks to end. Invariant: a watched process ends within a
// second after the order.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <thread>

#include "runtime/comm/communicator.h"
#include "runtime/config/job.h"
#include "runtime/core/rank_board.h"

namespace dstrain {

class WorldWatch {
 public:
  // Starts to watch this rank. `job` has the timeouts; by `secret` the watchers of several hosts know each other, or if
  // it is empty by what MPI carries. `master_addr`: the address at which they meet (watch_address.h). From now on the
  // communicator, which must outlive this object, writes to the board for which rank it waits. Collective. Throws
  // UserError on all ranks if they have several secrets, or `master_addr` cannot be used.
  WorldWatch(Communicator& comm, const Job& job, const std::string& secret,
             const std::string& master_addr);
  WorldWatch(const WorldWatch&) = delete;
  WorldWatch& operator=(const WorldWatch&) = delete;
  ~WorldWatch();

  // The board of this host's ranks. This rank's slot is in state `starting`.
  const RankBoard& board() const { return *board_; }

  // Called after this rank has reported a failure on the board: waits for the watcher's order, which ends this process.
  // Returns after some seconds if no order comes.
  void wait_for_end_order() const;

 private:
  void end_on_order() const;

  Communicator& comm_;
  std::optional<RankBoard> board_;
  std::atomic<bool> over_{false};
  std::thread order_thread_;
};

}  // namespace dstrain
