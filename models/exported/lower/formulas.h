// Formulas that several of PyTorch's operators are made of.
#pragma once

#include <cmath>

#include "runtime/ir/formula/formula.h"

namespace dstrain::exported {

// Returns 1 where x is a number, 0 where it is NaN.
inline Formula is_number(const Formula& x) {
  return maximum(less(x, 0), less(-1, x));
}

// Comparisons: 1 where they are true, else 0. With NaN none is.
inline Formula equal(const Formula& a, const Formula& b) {
  return select(less(a, b), 0, select(less(b, a), 0, is_number(a) * is_number(b)));
}
inline Formula less_or_equal(const Formula& a, const Formula& b) {
  return maximum(less(a, b), equal(a, b));
}

// The larger and the smaller of two tensors' elements. Where both are the same each has half of the gradient, as in PyTorch.
inline Formula larger(const Formula& a, const Formula& b) {
  return select(equal(a, b), 0.5f * a + 0.5f * b, maximum(a, b));
}
inline Formula smaller(const Formula& a, const Formula& b) {
  return select(equal(a, b), 0.5f * a + 0.5f * b, minimum(a, b));
}

// Returns x between two numbers. At these numbers x has the gradient, as in PyTorch.
inline Formula clamped(const Formula& x, float low, float high) {
  Formula y = x;
  if (low > -HUGE_VALF) y = select(less(y, low), low, y);
  return high < HUGE_VALF ? select(less(high, y), high, y) : y;
}

// Returns x to a power that is a number.
inline Formula power(const Formula& x, double exponent) {
  if (exponent == 0) return 1;
  constexpr double kMostProducts = 8;
  const double size = std::abs(exponent);
  Formula result = x;
  if (size == 0.5)
    result = square_root(x);
  else if (size != std::floor(size) || size > kMostProducts)
    return dstrain::power(x, static_cast<float>(exponent));
  for (int i = 1; i < static_cast<int>(size); ++i) result = result * x;
  return exponent < 0 ? 1 / result : result;
}

// Returns 1 where a remainder, which has the sign of what is divided, and the divisor have different signs.
inline Formula signs_differ(const Formula& rest, const Formula& divisor) {
  return select(rest, absolute(less(divisor, 0) - less(rest, 0)), 0);
}
// Returns a quotient that is rounded down, as PyTorch rounds it: the exact quotient, not that of f32. Its gradient is 0.
inline Formula floor_quotient(const Formula& a, const Formula& b) {
  const Formula rest = remainder(a, b);
  return select(b, rounded((a - rest) / b - signs_differ(rest, b)), rounded_down(a / b));
}
// Returns the remainder that has the sign of the divisor.
inline Formula floor_remainder(const Formula& a, const Formula& b) {
  const Formula rest = remainder(a, b);
  return rest + select(signs_differ(rest, b), b, 0);
}

}  // namespace dstrain::exported
