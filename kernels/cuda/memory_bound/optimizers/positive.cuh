// Bits that say where a second moment is above 0 (positive_bits).
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.cuh"

namespace dstrain::DSTRAIN_BACKEND {

// Sets v[k] to 1 where the bit of element at + k is set, and to 0 elsewhere and outside [0, n).
template <int N>
__device__ __forceinline__ void load_positive(const uint8_t* bits, int64_t at, int64_t n,
                                              float (&v)[N]) {
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const int64_t i = at + k;
    v[k] = i >= 0 && i < n && (bits[i / 8] >> (i % 8) & 1) != 0 ? 1.0f : 0.0f;
  }
}

}  // namespace dstrain::DSTRAIN_BACKEND
