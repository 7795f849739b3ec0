// The tokens of a file that a teacher is asked about.
#include "runtime/engine/forward/teacher_pass.h"

#include <catch2/catch.hpp>
#include <vector>

namespace dstrain {
namespace {

using Ranges = std::vector<TokenRange>;

TEST_CASE("windows lie one behind the other, and a last token alone is in none") {
  CHECK(ranges_of_windows(8, 4) == Ranges{{0, 4}, {4, 4}});
  CHECK(ranges_of_windows(10, 4) == Ranges{{0, 4}, {4, 4}, {8, 2}});
  CHECK(ranges_of_windows(9, 4) == Ranges{{0, 4}, {4, 4}});
  CHECK(ranges_of_windows(3, 4) == Ranges{{0, 3}});
}

TEST_CASE("documents are read from their beginnings, and those without a target are not") {
  const std::vector<int64_t> begins{0, 3, 4, 4, 12};
  CHECK(ranges_of_documents(begins, 4) == Ranges{{0, 3}, {4, 4}});
  CHECK(ranges_of_documents(begins, 16) == Ranges{{0, 3}, {4, 8}});
}

TEST_CASE("ranges are samples of their own, or as many as fit are one") {
  const Ranges ranges{{0, 3}, {4, 4}, {8, 2}, {12, 3}};
  CHECK(samples_of(ranges, 6, false).samples() == 4);
  const PackedSamples packed = samples_of(ranges, 6, true);
  REQUIRE(packed.samples() == 2);
  CHECK(packed.tokens() == 12);
  CHECK(packed.sample(0)[0].begin == 4);
  CHECK(packed.sample(0)[1].begin == 8);
}

}  // namespace
}  // namespace dstrain
