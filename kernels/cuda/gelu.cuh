// gelu in its tanh form and its derivative, for one element.
#pragma once

#include "kernels/cuda/launch.cuh"

namespace dstrain::DSTRAIN_BACKEND {

// gelu(x) = x (1 + tanh(u)) / 2 = x / (1 + exp(-2 u)).
inline constexpr float kTwiceRoot = 1.5957691216057308f;  // 2 sqrt(2 / pi)
inline constexpr float kCubic = 0.044715f;

__device__ __forceinline__ float minus_two_u(float x) {
  return -kTwiceRoot * x * fmaf(x * x, kCubic, 1.0f);
}

struct Gelu {
  __device__ static float value(float x) { return x / (1.0f + __expf(minus_two_u(x))); }
  __device__ static float grad(float d_y, float x) {
    const float e = __expf(-fabsf(minus_two_u(x)));
    const float whole = 1.0f / (1.0f + e), rest = e * whole;  // sigmoid(|2u|) and 1 minus it
    const float two_du = kTwiceRoot * fmaf(x * x, 3 * kCubic, 1.0f);
    return d_y * fmaf(x * two_du, whole * rest, x < 0.0f ? rest : whole);
  }
};

}  // namespace dstrain::DSTRAIN_BACKEND
