// The step size of one parameter under Lamb and 1-bit Lamb, written once for the CPU and for a kernel on a device.
#pragma once

#include <cmath>

#include "runtime/core/step_rules.h"
#include "runtime/ir/op.h"

namespace dstrain {

// Returns a parameter's trust ratio: the norm of its weights over that of its direction, limited, and 1 where either is
// 0. `sums` holds for each rank, in order, the square sums (weight, direction) of every parameter of the unit. Ranks
// are added in order.
DSTRAIN_HOST_DEVICE inline double lamb_trust(float min_coeff, float max_coeff, const double* sums,
                                             int64_t ranks, int64_t parameter, int64_t parameters) {
  double weight = 0, direction = 0;
  for (int64_t r = 0; r < ranks; ++r) {
    const double* own = sums + 2 * (r * parameters + parameter);
    weight += own[0];
    direction += own[1];
  }
  double trust = 1;
  if (weight > 0 && direction > 0) {
    trust = std::sqrt(weight) / std::sqrt(direction);
    if (trust > static_cast<double>(max_coeff)) trust = static_cast<double>(max_coeff);
    if (trust < static_cast<double>(min_coeff)) trust = static_cast<double>(min_coeff);
  }
  return trust;
}

// Returns the learning rate of the step and parameter, with the bias corrections, times the parameter's trust ratio.
DSTRAIN_HOST_DEVICE inline float lamb_rate(const StepState& s, const LambAttrs& a,
                                           const double* sums, int64_t ranks) {
  const double trust = lamb_trust(a.min_coeff, a.max_coeff, sums, ranks, a.parameter, a.parameters);
  const double corrected =
      std::sqrt(static_cast<double>(s.bias_correction2)) / static_cast<double>(s.bias_correction1);
  return static_cast<float>(static_cast<double>(s.lr * a.lr_scale) * corrected * trust);
}

// Returns the average of a parameter's trust ratio after another step, `before` being that of the steps before. As in
// DeepSpeed it begins with 0, and ratios of 1 do not count.
DSTRAIN_HOST_DEVICE inline float lamb_average(const LambAverageAttrs& a, float before,
                                              double trust) {
  if (trust == 1) return before;
  const auto beta = static_cast<double>(a.beta);
  return static_cast<float>(beta * static_cast<double>(before) + (1 - beta) * trust);
}

// Returns by what a momentum of n elements with this square sum is multiplied before it travels, so that its root mean
// square is 1; 1 if it is 0. Limited, so that no product of a momentum and its scale can overflow.
DSTRAIN_HOST_DEVICE inline float momentum_scale(double square_sum, int64_t n) {
  if (!(square_sum > 0)) return 1;
  const double scale = std::sqrt(static_cast<double>(n) / square_sum);
  return static_cast<float>(scale < 0x1p100 ? scale : 0x1p100);
}

// Returns a parameter's new factor from the old one, 0 before the first. `largest`: the largest ratio of the frozen to
// the fresh root of the second moment; `sums`: the square sums of the direction without and with weight decay, zeros
// where there is none. As in DeepSpeed the share of the decay in the direction is left out of the ratio.
DSTRAIN_HOST_DEVICE inline float lamb_factor(const LambFactorAttrs& a, float before, float largest,
                                             const double* sums) {
  const auto highest = static_cast<double>(a.largest), lowest = static_cast<double>(a.smallest);
  const auto threshold = static_cast<double>(a.threshold);
  const double last = before > 0 ? static_cast<double>(before) : 1;
  double factor = static_cast<double>(largest);
  if (sums[1] > 0 && sums[0] < sums[1]) {
    const double share = std::sqrt(sums[0] / sums[1]);
    factor =
        share > 0 ? factor * share + (1 - share) : 1;  // an infinite ratio times 0 is not a number
  }
  if (factor > highest) factor = highest;
  if (factor < lowest) factor = lowest;
  if (factor > last * (1 + threshold)) factor = last * (1 + threshold);
  if (factor < last * (1 - threshold)) factor = last * (1 - threshold);
  return static_cast<float>(factor);
}

// What the slices of a unit have found of its parameters: a row of each slice, in which `parameters` follow each other.
struct LambSlices {
  const float* largest;  // the largest ratio, at least 0, in `ratios` rows
  int64_t ratios;
  const double* sums;  // pairs of square sums, in `ranks` rows
  int64_t ranks;
  int64_t parameters;
};

// Returns a parameter's new factor, of the largest ratio of all slices and of sums that are added in order.
DSTRAIN_HOST_DEVICE inline float lamb_factor(const LambFactorAttrs& a, float before,
                                             const LambSlices& s, int64_t parameter) {
  float largest = s.largest[parameter];
  for (int64_t r = 1; r < s.ratios; ++r) {
    const float other = s.largest[r * s.parameters + parameter];
    if (other > largest) largest = other;
  }
  double sums[2] = {0, 0};
  for (int64_t r = 0; r < s.ranks; ++r)
    for (int k = 0; k < 2; ++k) sums[k] += s.sums[2 * (r * s.parameters + parameter) + k];
  return lamb_factor(a, before, largest, sums);
}

// Returns the rate of a step with a frozen second moment. A parameter whose trust ratio was always 1 has no average,
// and goes on with 1.
DSTRAIN_HOST_DEVICE inline float frozen_lamb_rate(const StepState& s, const LambAttrs& a,
                                                  float average, float factor) {
  return s.lr * a.lr_scale * ((average > 0 ? average : 1.0f) * factor);
}

}  // namespace dstrain
