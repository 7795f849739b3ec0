// Where the second moment of an element is above 0.
#pragma once

#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"

namespace dstrain::DSTRAIN_BACKEND {

// A second moment's values, or bits that say where they are above 0 (positive_bits); the other pointer is null.
struct SecondMoment {
  const float* values;
  const uint8_t* bits;

  // Sets v[k] to the value of element at + k. Of bits, it is 1 or 0, and 0 outside [0, n).
  template <int N>
  __device__ __forceinline__ void load_to(int64_t at, int64_t n, float (&v)[N]) const {
    if (!bits) return load(values, at, n, v);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const int64_t i = at + k;
      v[k] = i >= 0 && i < n && (bits[i / 8] >> (i % 8) & 1) != 0 ? 1.0f : 0.0f;
    }
  }
};

// Returns operand `i` of a call, whose dtype says which of the two it is.
inline SecondMoment second_moment_of(const KernelCall& call, size_t i) {
  if (call.in[i].dtype == DType::u8) return {nullptr, data<const uint8_t>(call.in, i)};
  return {data<const float>(call.in, i), nullptr};
}

}  // namespace dstrain::DSTRAIN_BACKEND
