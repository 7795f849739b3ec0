// Adam's update of the elements that a thread has (adam.cu, own_masters.cu, eight_bit.cu).
#pragma once

#include "runtime/core/step_state.h"

namespace dstrain::DSTRAIN_BACKEND {

// What an update of all elements has in common.
struct AdamRule {
  const StepState* state;
  float eps;
  bool decoupled, beside_muon;
};

// N elements of what an update reads and changes.
template <int N>
struct AdamValues {
  float grad[N], master[N], m[N], v[N];
};

template <int N>
__device__ __forceinline__ void update(const AdamRule& rule, float weight_decay, float lr_scale,
                                       AdamValues<N>& x) {
  const StepState& s = *rule.state;
  const auto rest1 = static_cast<float>(1.0 - s.beta1);
  const auto rest2 = static_cast<float>(1.0 - s.beta2);
  const float lr = (rule.beside_muon ? s.adam_lr : s.lr) * lr_scale;
  const float mend1 = 1.0f / s.bias_correction1, mend2 = 1.0f / s.bias_correction2;
  // l2 is added to the gradient, decay to the update.
  const float l2 = rule.decoupled ? 0.0f : weight_decay,
              decay = rule.decoupled ? weight_decay : 0.0f;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const float slope = fmaf(l2, x.master[k], x.grad[k] * s.grad_scale);
    x.m[k] = fmaf(rest1, slope - x.m[k], x.m[k]);
    x.v[k] = fmaf(rest2, slope * slope - x.v[k], x.v[k]);
    const float step = (x.m[k] * mend1) / (sqrtf(x.v[k] * mend2) + rule.eps);
    x.master[k] = fmaf(-lr, fmaf(decay, x.master[k], step), x.master[k]);
  }
}

}  // namespace dstrain::DSTRAIN_BACKEND
