// A formula is compared with a pattern whose operands may be any.
#include "runtime/ir/formula/match.h"

#include <catch2/catch.hpp>

namespace dstrain {
namespace {

const Formula kA = Formula::input(0), kB = Formula::input(1), kC = Formula::input(2);

TEST_CASE("operands of a pattern are those of the formula, or constants where it says so") {
  const Formula formula = Formula::input(4) * exponential(kA) + 2.5f;
  const auto found = match(kA * exponential(kB) + kC, formula, {2});
  REQUIRE(found);
  CHECK(found->operand(0) == 4);
  CHECK(found->operand(1) == 0);
  CHECK(found->operand(2) == -1);
  CHECK(found->constant(2) == 2.5f);
  CHECK(!found->constant(0));
  CHECK(found->operand(5) == -1);
  CHECK(!match(kA * exponential(kB) + kC, formula));
  CHECK(!match(kA * exponential(kB) + kC, formula, {0, 2}));
  const auto scaled = match(kA * kB, 3.0f * kC, {1});
  REQUIRE(scaled);
  CHECK(scaled->operand(0) == 2);
}

TEST_CASE("sums and products match the other way round, differences do not") {
  CHECK(match((kA - kB) * (kA + kC), (kC + kB) * (kB - kA)));
  CHECK(match(kA - exponential(kB), kB - exponential(kA)));
  CHECK(!match(kA - exponential(kB), exponential(kA) - kB));
  // The first way of a product is given up where the rest does not follow it.
  const auto found = match((kA * kB) / kA, (kA * kB) / kB);
  REQUIRE(found);
  CHECK(found->operand(0) == 1);
  CHECK(found->operand(1) == 0);
}

TEST_CASE("one operand of a pattern is the same everywhere") {
  CHECK(match(kA * kA, kB * kB));
  CHECK(!match(kA * kA, kA * kB));
  CHECK(match(kA * kB, kC * kC));
}

TEST_CASE("constants and functions of a pattern are as they are") {
  CHECK(match(2.0f * kA, 2.0f * kB));
  CHECK(!match(2.0f * kA, 3.0f * kB));
  CHECK(!match(tangent(kA), exponential(kA)));
  CHECK(!match(kA, exponential(kA)));
  CHECK(!match(Formula::inside(0), Formula::inside(0)));
  CHECK(!match(Formula(), kA));
}

}  // namespace
}  // namespace dstrain
