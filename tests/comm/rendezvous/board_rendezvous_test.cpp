#include "runtime/comm/rendezvous/board_rendezvous.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/comm/board_ranks.h"

namespace dstrain {
namespace {

// The number of a process that has ended.
int dead_process() {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(0);
  ::waitpid(pid, nullptr, 0);
  return pid;
}

TEST_CASE("every rank gets the records of all, round after round") {
  constexpr int kRanks = 5, kRounds = 200;
  const RankBoard board = board_of(kRanks);
  std::array<int, kRanks> wrong{};
  const auto errors = run_ranks(kRanks, [&](int rank) {
    BoardRendezvous ranks(board, rank, 60);
    for (int round = 0; round < kRounds; ++round) {
      const std::array<int, 60> mine = {rank, round, rank * round};
      const auto all = ranks.gather(mine);
      for (int r = 0; r < kRanks; ++r)
        wrong[static_cast<size_t>(rank)] +=
            all[static_cast<size_t>(r)] != std::array<int, 60>{r, round, r * round};
      const bool agreed = ranks.all_agree(round % 2 == 0 || rank != round % kRanks);
      wrong[static_cast<size_t>(rank)] += agreed != (round % 2 == 0);
    }
  });
  for (const std::string& error : errors) CHECK(error.empty());
  for (const int count : wrong) CHECK(count == 0);
}

TEST_CASE("one rendezvous may follow another on a board") {
  const RankBoard board = board_of(2);
  for (int i = 0; i < 3; ++i) {
    std::array<std::vector<int>, 2> seen;
    const auto errors = run_ranks(2, [&](int rank) {
      seen[static_cast<size_t>(rank)] = BoardRendezvous(board, rank, 60).gather(rank);
    });
    for (const std::string& error : errors) CHECK(error.empty());
    for (const std::vector<int>& ranks : seen) CHECK(ranks == std::vector<int>{0, 1});
  }
}

TEST_CASE("who waits for a rank that does not come says which") {
  const RankBoard board = board_of(3);
  SECTION("at the deadline") {
    const auto errors =
        run_ranks(2, [&](int rank) { BoardRendezvous(board, rank, 0.2).gather(rank); });
    for (size_t r = 0; r < 2; ++r) {
      const std::string pid = std::to_string(::getpid());
      CHECK(errors[r].starts_with("rank " + std::to_string(r) + " waited "));
      CHECK(errors[r].ends_with("s for rank 2 (pid " + pid + ") to join: the deadline is 0.2 s"));
      CHECK(board.slot(static_cast<int>(r)).waits_for == 2);
    }
  }
  SECTION("one that never began, too") {
    board.slot(2).pid = 0;
    for (const std::string& error :
         run_ranks(2, [&](int rank) { BoardRendezvous(board, rank, 0.2).gather(rank); }))
      CHECK(error.ends_with("s for rank 2, which has not begun to join: the deadline is 0.2 s"));
  }
  SECTION("where it has died, long before") {
    const int pid = dead_process();
    board.slot(2).pid = pid;
    for (const std::string& error :
         run_ranks(2, [&](int rank) { BoardRendezvous(board, rank, 600).gather(rank); }))
      CHECK(error ==
            "rank 2 (pid " + std::to_string(pid) + ") died before it had joined the others");
  }
  SECTION("where it has failed, with its reason") {
    board.fail(2, FailureKind::user, "no such file: input.txt");
    for (const std::string& error :
         run_ranks(2, [&](int rank) { BoardRendezvous(board, rank, 600).gather(rank); }))
      CHECK(error == "rank 2 stopped the run: no such file: input.txt");
  }
}

}  // namespace
}  // namespace dstrain
