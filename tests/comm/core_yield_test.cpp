#include "runtime/comm/core_yield.h"

#include <catch2/catch.hpp>

using namespace dstrain;
using namespace std::chrono_literals;

TEST_CASE("after a yield that took long none follows for 64 times as long") {
  CoreYield yield;
  const CoreYield::Clock::time_point begin{1h};
  CHECK(yield.may_yield(begin));
  yield.note(begin, begin + 500us);
  CHECK(yield.may_yield(begin + 500us));
  yield.note(begin, begin + 4ms);
  CHECK_FALSE(yield.may_yield(begin + 4ms));
  CHECK_FALSE(yield.may_yield(begin + 4ms + 64 * 4ms - 1us));
  CHECK(yield.may_yield(begin + 4ms + 64 * 4ms));
}

TEST_CASE("a yield that may not be returns at once") {
  CoreYield yield;
  const auto now = CoreYield::Clock::now();
  yield.note(now, now + 1h);
  CHECK_FALSE(yield.yield());
}
