#include "models/exported/lower/formulas.h"

#include <catch2/catch.hpp>
#include <vector>

namespace dstrain::exported {
namespace {

const Formula kA = Formula::input(0), kB = Formula::input(1);

// Returns the derivative of a formula with respect to an operand at a point.
double slope(const Formula& formula, int operand, const std::vector<double>& at) {
  const auto derived = derivative(formula, operand);
  return derived ? derived->value(at) : 0;
}

TEST_CASE("equal elements share the gradient of the larger and the smaller one") {
  for (const Formula& formula : {larger(kA, kB), smaller(kA, kB)}) {
    CHECK(formula.value(std::vector<double>{3, 3}) == 3);
    CHECK(slope(formula, 0, {3, 3}) == 0.5);
    CHECK(slope(formula, 1, {3, 3}) == 0.5);
  }
  CHECK(larger(kA, kB).value(std::vector<double>{2, 3}) == 3);
  CHECK(slope(larger(kA, kB), 0, {2, 3}) == 0);
  CHECK(slope(smaller(kA, kB), 0, {2, 3}) == 1);
}

TEST_CASE("what is clamped has the gradient at the limits, and not behind them") {
  const Formula formula = clamped(kA, -1, 2);
  struct Point {
    double x, y, slope;
  };
  for (const Point& p : {Point{-1, -1, 1}, {2, 2, 1}, {0, 0, 1}, {-1.5, -1, 0}, {3, 2, 0}}) {
    CHECK(formula.value(std::vector<double>{p.x}) == p.y);
    CHECK(slope(formula, 0, {p.x}) == p.slope);
  }
}

TEST_CASE("comparisons with NaN are not true") {
  const std::vector<double> nan{std::nan(""), 1};
  CHECK(equal(kA, kB).value(nan) == 0);
  CHECK(equal(kA, kA).value(nan) == 0);
  CHECK(less_or_equal(kA, kB).value(nan) == 0);
  CHECK(less_or_equal(kA, kB).value(std::vector<double>{1, 1}) == 1);
}

}  // namespace
}  // namespace dstrain::exported
