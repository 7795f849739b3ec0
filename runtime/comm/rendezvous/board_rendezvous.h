// BoardRendezvous: the rendezvous of ranks that one process launched on this machine. They meet on its board, without
// MPI. Each posts its record in its own slot; the last one wakes the others. Stands on core/rank_board.h.
#pragma once

#include <chrono>
#include <cstdint>

#include "runtime/comm/rendezvous/rendezvous.h"
#include "runtime/core/rank_board.h"

namespace dstrain {

class BoardRendezvous final : public Rendezvous {
 public:
  // Joins as rank `rank`; all ranks of the board must join. One rendezvous on a board may follow another,
  // but not overlap it. `board` outlives this object. gather() waits for the others for at most
  // `deadline_seconds`, and throws PeerError that names a rank which is late, has died or has failed.
  BoardRendezvous(const RankBoard& board, int rank, double deadline_seconds);

  int rank() const override { return rank_; }
  int size() const override { return board_.ranks(); }
  void leave() override {}

 private:
  using Clock = std::chrono::steady_clock;

  void gather_bytes(const void* mine, void* all, size_t bytes) override;
  void wait_for(uint32_t round);
  bool has_posted(int rank, uint32_t round) const;
  void check_absent_ranks(uint32_t round, Clock::time_point waiting_since);

  const RankBoard& board_;
  int rank_;
  double deadline_seconds_;
  uint32_t rounds_;
};

}  // namespace dstrain
