#include "launcher/connection/silence.h"

#include <catch2/catch.hpp>

namespace dstrain {
namespace {

constexpr int64_t kSilentSecond = 1'000'000'000;

TEST_CASE("time in which this process was suspended is no silence") {
  Silence silence(10 * kSilentSecond);
  for (int64_t t = 10 * kSilentSecond; t <= 13 * kSilentSecond; t += kSilentSecond / 10)
    silence.update(t);
  CHECK(silence.ns() == 3 * kSilentSecond);
  silence.update(1000 * kSilentSecond);  // this process was suspended for long
  CHECK(silence.ns() == 4 * kSilentSecond);
  silence.heard();
  CHECK(silence.ns() == 0);
  silence.update(1000 * kSilentSecond + kSilentSecond / 2);
  CHECK(silence.ns() == kSilentSecond / 2);
}

}  // namespace
}  // namespace dstrain
