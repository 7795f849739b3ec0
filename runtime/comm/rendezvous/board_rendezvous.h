// BoardRendezvous: ranks that one process launched on this machine meet on its board, without MPI. Each
// lays a card with its record there; the last one wakes the others. Stands on core/rank_board.h.
#pragma once

#include <chrono>
#include <cstdint>

#include "runtime/comm/rendezvous/rendezvous.h"
#include "runtime/core/rank_board.h"

namespace dstrain {

class BoardRendezvous final : public Rendezvous {
 public:
  // `rank`: of the board's ranks, which all join. A wait for others lasts at most `deadline_seconds`
  // and ends at once where one of them dies or fails: PeerError (a RunError) that names it. `board`
  // outlives this object. All rendezvous on one board follow one another.
  BoardRendezvous(const RankBoard& board, int rank, double deadline_seconds);

  int rank() const override { return rank_; }
  int size() const override { return board_.ranks(); }
  void leave() override {}

 private:
  using Clock = std::chrono::steady_clock;

  void gather_bytes(const void* mine, void* all, size_t bytes) override;
  void wait_for(uint32_t round);
  void look_after(uint32_t round, Clock::time_point waiting_since);
  int missing(uint32_t round) const;

  const RankBoard& board_;
  int rank_;
  double deadline_seconds_;
  uint32_t rounds_;
};

}  // namespace dstrain
