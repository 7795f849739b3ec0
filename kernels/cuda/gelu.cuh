// gelu in its tanh form and in its exact one, and their derivatives, for one element.
#pragma once

#include "kernels/cuda/launch.cuh"

namespace dstrain::DSTRAIN_BACKEND {

// gelu(x) = x (1 + tanh(u)) / 2 = x / (1 + exp(-2 u)).
inline constexpr float kTwiceRoot = 1.5957691216057308f;  // 2 sqrt(2 / pi)
inline constexpr float kCubic = 0.044715f;

__device__ __forceinline__ float minus_two_u(float x) {
  return -kTwiceRoot * x * fmaf(x * x, kCubic, 1.0f);
}

// A curve's value at x, with its slope there.
struct ValueAndSlope {
  float value, slope;
};

struct Gelu {
  __device__ static float value(float x) { return x / (1.0f + __expf(minus_two_u(x))); }
  __device__ static ValueAndSlope at(float x) {
    const float e = __expf(-fabsf(minus_two_u(x)));
    const float whole = 1.0f / (1.0f + e), rest = e * whole;  // sigmoid(|2u|) and 1 minus it
    const float sigmoid = x < 0.0f ? rest : whole;
    const float two_du = kTwiceRoot * fmaf(x * x, 3 * kCubic, 1.0f);
    return {x * sigmoid, fmaf(x * two_du, whole * rest, sigmoid)};
  }
  __device__ static float grad(float d_y, float x) { return d_y * at(x).slope; }
};

// x times the probability that a normal value is less than x.
struct GeluErf {
  __device__ static float value(float x) { return x * probability(x); }
  __device__ static ValueAndSlope at(float x) {
    const float below = probability(x), density = 0.3989422804014327f * __expf(-0.5f * x * x);
    return {x * below, fmaf(x, density, below)};
  }
  __device__ static float grad(float d_y, float x) { return d_y * at(x).slope; }

 private:
  __device__ static float probability(float x) { return 0.5f * erfcf(-0.7071067811865475f * x); }
};

}  // namespace dstrain::DSTRAIN_BACKEND
