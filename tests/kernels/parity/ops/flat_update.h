// Many steps of an optimizer's kernel on flat values, for comparison with its definition in fp64.
#pragma once

#include "tests/kernels/parity/ops/run_op.h"

namespace dstrain::parity {

using Values = std::vector<double>;

// The step state of update number `step` (from 0) of a run with constant betas, and its gradient.
struct FlatStep {
  StepState state;
  Values gradient;  // as the kernel gets it: scaled by 1 / grad_scale
  DType dtype;

  FlatStep(int step, int64_t n, DType of_gradient, double beta1, double beta2)
      : dtype(of_gradient) {
    state.lr = 0.01f;
    state.beta1 = beta1;
    state.beta2 = beta2;
    state.bias_correction1 = static_cast<float>(1 - std::pow(beta1, step + 1));
    state.bias_correction2 = static_cast<float>(1 - std::pow(beta2, step + 1));
    state.grad_scale = 0.5f;
    state.applied_steps = step;
    gradient = rounded(normal_values(n, 100 + static_cast<uint64_t>(step), 0.5), dtype);
  }
  Operand in() const { return {Shape{static_cast<int64_t>(gradient.size())}, dtype, gradient}; }
  // The gradient of element i in fp64.
  double g(size_t i) const { return 0.5 * gradient[i]; }
};

inline Operand flat(const Values& x) {
  return {Shape{static_cast<int64_t>(x.size())}, DType::f32, x};
}

}  // namespace dstrain::parity
