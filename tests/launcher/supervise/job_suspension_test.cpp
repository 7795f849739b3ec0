#include "launcher/supervise/watchers/job_suspension.h"

#include <catch2/catch.hpp>

namespace dstrain {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

TEST_CASE("a stopped rank is a fault unless all ranks are stopped, or were some seconds ago") {
  JobSuspension suspension;
  CHECK_FALSE(suspension.excuses(false, 1 * kSecond));
  CHECK(suspension.excuses(true, 2 * kSecond));
  CHECK(suspension.excuses(true, 1000 * kSecond));
  CHECK(suspension.excuses(false, 1003 * kSecond));  // hosts continue one after the other
  CHECK_FALSE(suspension.excuses(false, 1004 * kSecond));
  CHECK(suspension.excuses(true, 1005 * kSecond));
}

}  // namespace
}  // namespace dstrain
