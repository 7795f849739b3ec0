// join_board(): a rank that is a thread of the test joins the others, which share memory.
#pragma once

#include <memory>
#include <string>

#include "runtime/comm/shared/shared_comm.h"
#include "tests/comm/board_ranks.h"

namespace dstrain {

// Collective over the ranks of `board`, which outlives the result.
inline std::unique_ptr<Communicator> join_board(const RankBoard& board, int rank) {
  auto ranks = std::make_unique<BoardRendezvous>(board, rank, 60);
  Peers peers(*ranks, 0);
  std::string why;
  auto group = SharedGroup::open(*ranks, peers, SharedGroup::kBounceBytes, why);
  if (!group) throw PeerError(why);
  CommOptions options;
  options.deadline_seconds = 60;
  options.slot = &board.slot(rank);
  return std::make_unique<SharedComm>(std::move(ranks), std::move(peers), std::move(group),
                                      options);
}

}  // namespace dstrain
