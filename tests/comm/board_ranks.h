// Ranks that meet on a board: threads of the test, each with a rendezvous of its own.
#pragma once

#include <unistd.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/comm/rendezvous/board_rendezvous.h"
#include "runtime/core/error.h"

namespace dstrain {

// Runs `part` for each of `ranks` in a thread of its own; returns the text of the RunError that it threw, by
// rank.
inline std::vector<std::string> run_ranks(int ranks, const std::function<void(int rank)>& part) {
  std::vector<std::string> errors(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        part(rank);
      } catch (const RunError& error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

// A board whose ranks all have joined, as this process.
inline RankBoard board_of(int ranks) {
  RankBoard board = RankBoard::create(ranks);
  for (int rank = 0; rank < ranks; ++rank) board.slot(rank).pid = ::getpid();
  return board;
}

}  // namespace dstrain
