#include "launcher/ranks/rank_starter.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "launcher/process/child.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/world_environment.h"
#include "tests/launcher/support/processes.h"

namespace dstrain {
namespace {

// Starts two ranks in a process of their own. Returns how it ended, as waitpid() tells it.
int status_of(const std::function<int()>& rank) {
  Child starter([&] { return start_ranks_here(2, rank); }, {});
  REQUIRE(wait_until([&] { return starter.ended().has_value(); }));
  return *starter.ended();
}

TEST_CASE("a rank that fails leaves the others time to fail for reasons of their own") {
  // The second rank has no handler for SIGTERM yet. If that ended it, the supervisor would take it for the cause.
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const int status = status_of([&] {
    if (world_rank_from_environment() == 0) return 3;
    ::usleep(50'000);
    return ::write(ends[1], "x", 1) == 1 ? 0 : 1;
  });
  CHECK(WEXITSTATUS(status) == 3);
  ::close(ends[1]);
  char byte = 0;
  CHECK(::read(ends[0], &byte, 1) == 1);
  ::close(ends[0]);
}

TEST_CASE("a rank that does not end after a failure is killed") {
  const int status = status_of([] {
    if (world_rank_from_environment() == 0) return 3;
    ::signal(SIGTERM, SIG_IGN);
    for (;;) ::pause();
  });
  CHECK(WEXITSTATUS(status) == 3);
}

}  // namespace
}  // namespace dstrain
