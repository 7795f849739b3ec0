// Lion's update of the elements that a thread has (lion.cu, eight_bit.cu).
#pragma once

#include "runtime/core/step_state.h"

namespace dstrain::DSTRAIN_BACKEND {

template <int N>
__device__ __forceinline__ void update_lion(const StepState& s, float decay, float lr_scale,
                                            const float (&grad)[N], float (&master)[N],
                                            float (&m)[N]) {
  const auto rest1 = static_cast<float>(1.0 - s.beta1);
  const auto rest2 = static_cast<float>(1.0 - s.beta2);
  const float lr = s.lr * lr_scale;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const float change = grad[k] * s.grad_scale - m[k];
    const float c = fmaf(rest1, change, m[k]);
    const float sign = c > 0 ? 1.0f : c < 0 ? -1.0f : 0.0f;
    m[k] = fmaf(rest2, change, m[k]);
    master[k] = fmaf(-lr, fmaf(decay, master[k], sign), master[k]);
  }
}

}  // namespace dstrain::DSTRAIN_BACKEND
