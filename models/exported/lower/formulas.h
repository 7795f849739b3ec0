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

// Returns x to a power. Where the power is no whole number x must not be negative, as in PyTorch.
inline Formula power(const Formula& x, double exponent) {
  if (exponent == 0) return 1;
  if (exponent < 0) return 1 / power(x, -exponent);
  if (exponent == 0.5) return square_root(x);
  constexpr double kMostProducts = 8;
  if (exponent != std::floor(exponent) || exponent > kMostProducts)
    return exponential(static_cast<float>(exponent) * logarithm(x));
  Formula result = x;
  for (int i = 1; i < static_cast<int>(exponent); ++i) result = result * x;
  return result;
}

}  // namespace dstrain::exported
