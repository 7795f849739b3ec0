// The step size of one parameter under Lamb, written once for the CPU and for a kernel on a device.
#pragma once

#include <cmath>

#include "runtime/core/step_rules.h"
#include "runtime/ir/op.h"

namespace dstrain {

// Returns the learning rate of the step, with the bias corrections, times the parameter's trust ratio: the norm of its
// weights over that of its direction, limited, and 1 where either is 0. `sums` holds for each rank, in order, the
// square sums (weight, direction) of every parameter of the unit. Ranks are added in order.
DSTRAIN_HOST_DEVICE inline float lamb_rate(const StepState& s, const LambAttrs& a,
                                           const double* sums, int64_t ranks) {
  double weight = 0, direction = 0;
  for (int64_t r = 0; r < ranks; ++r) {
    const double* own = sums + 2 * (r * a.parameters + a.parameter);
    weight += own[0];
    direction += own[1];
  }
  double trust = 1;
  if (weight > 0 && direction > 0) {
    trust = std::sqrt(weight) / std::sqrt(direction);
    if (trust > static_cast<double>(a.max_coeff)) trust = static_cast<double>(a.max_coeff);
    if (trust < static_cast<double>(a.min_coeff)) trust = static_cast<double>(a.min_coeff);
  }
  const double corrected =
      std::sqrt(static_cast<double>(s.bias_correction2)) / static_cast<double>(s.bias_correction1);
  return static_cast<float>(static_cast<double>(s.lr) * corrected * trust);
}

}  // namespace dstrain
