// The elements that dropout keeps, by the rule of runtime/core/philox.h.
#pragma once

#include "kernels/cuda/launch.cuh"
#include "runtime/core/philox.h"

namespace dstrain::DSTRAIN_BACKEND {

inline constexpr int kDrawn = 8;  // elements of a Philox block

// v[k] = 0 where element kDrawn * block + k of a sample is dropped.
__device__ __forceinline__ void drop(float (&v)[kDrawn], uint32_t threshold, PhiloxKey key,
                                     uint64_t sample, uint64_t block) {
  const PhiloxBlock words =
      philox(key, {static_cast<uint32_t>(sample), static_cast<uint32_t>(sample >> 32),
                   static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32)});
#pragma unroll
  for (int k = 0; k < kDrawn; ++k) {
    const uint32_t bits = k % 2 ? words[k / 2] >> 16 : words[k / 2] & 0xffffu;
    v[k] = bits >= threshold ? v[k] : 0.0f;
  }
}

}  // namespace dstrain::DSTRAIN_BACKEND
