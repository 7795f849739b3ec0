// Formulas of losses of an element: x is what the model says, t what is right. PyTorch's definitions.
#pragma once

#include "runtime/ir/formula/formula.h"

namespace dstrain {

inline Formula squared_error(const Formula& x, const Formula& t) {
  const Formula d = x - t;
  return d * d;
}
inline Formula absolute_error(const Formula& x, const Formula& t) {
  return absolute(x - t);
}
// Quadratic where the error is less than beta > 0, else linear.
inline Formula smooth_absolute_error(const Formula& x, const Formula& t, float beta) {
  const Formula d = absolute(x - t);
  return select(less(d, beta), 0.5f * d * d / beta, d - 0.5f * beta);
}
// Binary cross-entropy of a probability. Logarithms are at least -100.
inline Formula binary_cross_entropy(const Formula& x, const Formula& t) {
  return -(t * maximum(logarithm(x), -100) + (1 - t) * maximum(logarithm(1 - x), -100));
}
// The same of a logit. Half of x + |x| is the larger one of x and 0, with the slope 1/2 at 0, where the whole has no kink.
inline Formula binary_cross_entropy_of_logit(const Formula& x, const Formula& t) {
  const Formula size = absolute(x);
  return 0.5f * (x + size) - x * t + logarithm(1 + exponential(-size));
}

}  // namespace dstrain
