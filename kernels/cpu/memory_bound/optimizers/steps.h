// The constants of the steps of Adam and Lion.
#pragma once

#include "runtime/core/step_state.h"
#include "runtime/ir/op.h"

namespace dstrain::simd {

// The constants of a step of Adam or AdamW.
struct AdamStep {
  float grad_scale, rest1, rest2, inverse_correction1, inverse_correction2;
  float lr, eps, l2, decay;  // l2 is added to the gradient, decay to the update

  AdamStep(const StepState& s, const AdamAttrs& a)
      : grad_scale(s.grad_scale),
        rest1(static_cast<float>(1.0 - s.beta1)),
        rest2(static_cast<float>(1.0 - s.beta2)),
        inverse_correction1(static_cast<float>(1.0 / static_cast<double>(s.bias_correction1))),
        inverse_correction2(static_cast<float>(1.0 / static_cast<double>(s.bias_correction2))),
        lr((a.beside_muon ? s.adam_lr : s.lr) * a.lr_scale),
        eps(a.eps),
        l2(a.decoupled_decay ? 0.0f : a.weight_decay),
        decay(a.decoupled_decay ? a.weight_decay : 0.0f) {}
};

// The constants of a step of Lion.
struct LionStep {
  float lr, grad_scale, rest1, rest2, decay;

  LionStep(const StepState& s, const LionAttrs& a)
      : lr(s.lr * a.lr_scale),
        grad_scale(s.grad_scale),
        rest1(static_cast<float>(1.0 - s.beta1)),
        rest2(static_cast<float>(1.0 - s.beta2)),
        decay(a.weight_decay) {}
};

}  // namespace dstrain::simd
