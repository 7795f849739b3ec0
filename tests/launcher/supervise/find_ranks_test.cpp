#include "launcher/supervise/find_ranks.h"

#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "launcher/process/child.h"
#include "launcher/supervise/board_view.h"
#include "tests/launcher/support/processes.h"

namespace dstrain {
namespace {

using Words = std::vector<std::string>;

const std::string kName = "DSTRAIN_TEST_" + std::to_string(::getpid());

TEST_CASE("ranks are known by the mark in their environment") {
  const Words sleep = {"/bin/sleep", "60"};
  const Child first(sleep, {{kName, "a"}, {"OMPI_COMM_WORLD_RANK", "0"}});
  const Child third(sleep, {{kName, "a"}, {"OMPI_COMM_WORLD_RANK", "2"}});
  const Child no_rank(sleep, {{kName, "a"}});
  const Child other_run(sleep, {{kName, "ab"}, {"OMPI_COMM_WORLD_RANK", "1"}});
  const std::map<int, pid_t> expected = {{0, first.pid()}, {2, third.pid()}};
  CHECK(wait_until([&] { return find_ranks(kName + "=a") == expected; }));
}

TEST_CASE("a rank that is stopped before it has joined is seen, and how it ends") {
  const RankBoard board = RankBoard::create(2);
  const std::vector<int> ranks = {1};
  BoardView view(board, ranks, kName + "=b");
  CHECK_FALSE(view.ranks()[0].joined());
  CHECK(view.ranks()[0].moved_ns > 0);
  Child rank({"/bin/sleep", "60"}, {{kName, "b"}, {"OMPI_COMM_WORLD_RANK", "1"}});
  REQUIRE(wait_until([] { return !find_ranks(kName + "=b").empty(); }));  // it runs its program
  rank.signal(SIGSTOP);
  const auto comes_to = [&](const auto& what) {
    return wait_until([&] {
      view.update(true);
      return what(view.ranks()[0]);
    });
  };
  CHECK(comes_to([](const RankReport& r) { return r.suspended_since != 0; }));
  CHECK(view.ranks()[0].pid == rank.pid());
  rank.signal(SIGKILL);
  CHECK(comes_to([](const RankReport& r) { return r.vanished(); }));
  while (!rank.ended()) ::usleep(1000);  // collects it
  view.update(true);
  // Older kernels do not tell.
  const auto status = view.ranks()[0].wait_status;
  CHECK((!status || *status == SIGKILL));
}

}  // namespace
}  // namespace dstrain
