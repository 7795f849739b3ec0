#include "launcher/supervise/run_ending.h"

#include <catch2/catch.hpp>

namespace dstrain {
namespace {

constexpr int64_t kMs = 1'000'000;

TEST_CASE("faults settle before the root cause is chosen, failures of peers for longer") {
  RunEnding end(150 * kMs);
  CHECK_FALSE(end.settled(true, false, 1000 * kMs));
  CHECK(end.has_fault());
  CHECK_FALSE(end.settled(true, false, 1149 * kMs));
  CHECK(end.settled(true, false, 1150 * kMs));
  CHECK_FALSE(end.settled(true, true, 1150 * kMs));
  CHECK_FALSE(end.settled(true, true, 3999 * kMs));
  CHECK(end.settled(true, true, 4000 * kMs));
}

TEST_CASE("a fault that passes is forgotten") {
  RunEnding end(150 * kMs);
  CHECK_FALSE(end.settled(true, false, 1000 * kMs));
  CHECK_FALSE(end.settled(false, false, 1100 * kMs));
  CHECK_FALSE(end.has_fault());
  CHECK_FALSE(end.settled(true, false, 1200 * kMs));
  CHECK(end.settled(true, false, 1350 * kMs));
}

TEST_CASE("ranks that were told to end are killed after one second and given up after six") {
  RunEnding end(0);
  CHECK_FALSE(end.begun());
  CHECK_FALSE(end.kills_ranks(10'000 * kMs));
  CHECK_FALSE(end.gives_up(10'000 * kMs));
  end.begin(2000 * kMs);
  CHECK(end.begun());
  CHECK_FALSE(end.kills_ranks(2999 * kMs));
  CHECK(end.kills_ranks(3000 * kMs));
  CHECK_FALSE(end.lasts(4000 * kMs, 5999 * kMs));
  CHECK(end.lasts(4000 * kMs, 6000 * kMs));
  CHECK_FALSE(end.gives_up(7999 * kMs));
  CHECK(end.gives_up(8000 * kMs));
}

}  // namespace
}  // namespace dstrain
