// Step rules: how the end of a step changes the step state, written once for the host and for a kernel
// on a device: norm, clipping, the finite check and DeepSpeed's dynamic loss scale (its ZeRO 1-3
// behaviour, held at every stage).
// Invariant: loss_scale is the scale that this step's backward used and stays untouched, because the
// gradients are unscaled by it; the new value goes to next_loss_scale, which the trainer moves over
// before the next step. (DeepSpeed updates first, and so divides by the wrong scale on a step where it
// grows.)
#pragma once

#include <cmath>
#include <cstdint>

#include "runtime/core/step_state.h"

#ifdef __CUDACC__
#define DSTRAIN_HOST_DEVICE __host__ __device__
#else
#define DSTRAIN_HOST_DEVICE
#endif

namespace dstrain {

// How the loss is scaled: by a constant, or by a scale that changes while training runs. Used with fp16 only.
struct LossScaleConfig {
  bool dynamic = false;
  double initial = 1;  // 2^initial_scale_power, or the static scale
  int64_t window = 1000;
  int hysteresis = 2;
  bool consecutive_hysteresis = false;
  double minimum = 1;
  bool operator==(const LossScaleConfig&) const = default;
};

// The constants that the end of each step of a kind uses: the limit of the gradient's norm, the loss scale, and the
// ranks that add their gradients.
struct FinishRule {
  double clip = 0;  // of the gradient's norm; 0: off
  LossScaleConfig loss_scale;
  int64_t first_rank = 0;   // of the ranks with this rank's gradient
  int64_t group_ranks = 0;  // their number; 0: all ranks
};

DSTRAIN_HOST_DEVICE inline bool is_number(double x) {
  return x - x == 0;
}

// Advances the scaler by one step whose gradients did (`overflow`) or did not hold an inf or nan; writes
// next_loss_scale, hysteresis, last_overflow and scaler_iteration. A static scale never moves. At an
// overflow when the scale is already at its minimum the state stays as it is but for scale_exhausted.
DSTRAIN_HOST_DEVICE inline void advance_loss_scale(StepState& state, const LossScaleConfig& config,
                                                   bool overflow) {
  state.scale_exhausted = 0;
  float next = state.loss_scale;
  if (config.dynamic && overflow) {
    if (config.hysteresis > 1 && state.hysteresis > 1) {
      --state.hysteresis;
    } else if (static_cast<double>(state.loss_scale) <= config.minimum) {
      state.scale_exhausted = 1;
      return;
    } else {
      const double half = static_cast<double>(state.loss_scale) / 2;
      next = static_cast<float>(half > config.minimum ? half : config.minimum);
    }
  } else if (config.dynamic) {
    if (config.consecutive_hysteresis) state.hysteresis = config.hysteresis;
    const int64_t clean = state.scaler_iteration - state.last_overflow - 1;
    if (clean > 0 && clean % config.window == 0) {
      state.hysteresis = config.hysteresis;
      // A run whose gradients are all zero never overflows; its scale must stay a number.
      if (is_number(state.loss_scale * 2)) next = state.loss_scale * 2;
    }
  }
  state.next_loss_scale = next;
  if (overflow) state.last_overflow = state.scaler_iteration;
  ++state.scaler_iteration;
}

// The values that each rank contributes to the end of a step: the square sum of its gradients, its loss, its
// stop flag.
inline constexpr int64_t kFinishValues = 3;

// Adds the contributions of all ranks, kFinishValues each, in rank order; square sums also of this rank's group alone.
DSTRAIN_HOST_DEVICE inline void add_finish_values(StepState& s, const double* values, int64_t ranks,
                                                  const FinishRule& rule) {
  const int64_t group = rule.group_ranks > 0 ? rule.group_ranks : ranks;
  double all = 0;
  s.grad_square_sum = s.loss_sum = 0;
  s.stop = 0;
  for (int64_t r = 0; r < ranks; ++r, values += kFinishValues) {
    all += values[0];
    if (r >= rule.first_rank && r < rule.first_rank + group) s.grad_square_sum += values[0];
    s.loss_sum += values[1];
    if (values[2] != 0) s.stop = 1;
  }
  const int64_t groups = ranks / group;
  s.mean_square_sum = all / static_cast<double>(groups);
}

// The end of a step whose sums are in the state: norm, skip flag, gradient scale, loss scale. Groups of ranks with
// gradients of their own clip each by its own norm, and have the same skip flag and loss scale.
DSTRAIN_HOST_DEVICE inline void finish_step(StepState& s, const FinishRule& rule) {
  constexpr double kClipEps = 1e-6;  // as in torch.nn.utils.clip_grad_norm_ and DeepSpeed
  const double scale = s.loss_scale;
  const double norm = std::sqrt(s.grad_square_sum) / scale;
  s.grad_norm = static_cast<float>(std::sqrt(s.mean_square_sum) / scale);
  const bool finite = is_number(s.mean_square_sum) && is_number(s.loss_sum);
  s.skip = finite ? 0 : 1;
  double coefficient = 1;
  if (finite && rule.clip > 0 && rule.clip / (norm + kClipEps) < 1)
    coefficient = rule.clip / (norm + kClipEps);
  s.grad_scale = static_cast<float>(coefficient / scale);
  advance_loss_scale(s, rule.loss_scale, !finite);
}

}  // namespace dstrain
