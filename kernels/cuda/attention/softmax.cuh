// The softmax of rows whose scores come in blocks.
#pragma once

#include "kernels/cuda/attention/rows.cuh"

namespace dstrain::DSTRAIN_BACKEND {

// The running softmax of rows g (half 0) and g + 8 (half 1) of 16 rows. Exponents have base 2; `total` is this
// lane's part of the sum.
struct RunningSoftmax {
  float max[2] = {-INFINITY, -INFINITY};
  float total[2] = {0, 0};

  // Replaces scores by weights relative to the new maximum, and rescales the sums to it. kSomeUnseen: a row may have seen
  // no key so far.
  template <bool kSomeUnseen, int kTiles, int kSumTiles>
  __device__ __forceinline__ void step(float (&scores)[kTiles][4], float (&sums)[kSumTiles][4],
                                       float scale) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float largest = -INFINITY;
#pragma unroll
      for (int n = 0; n < kTiles; ++n)
        largest = fmaxf(largest, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
      float new_max = fmaxf(max[half], quad_max(largest) * scale);
      const float seen_max = new_max;
      // All exponents are -infinity then, which must stay so.
      if constexpr (kSomeUnseen) new_max = new_max == -INFINITY ? 0 : new_max;
      const float correction = exp2_of(max[half] - new_max);
      max[half] = seen_max;
      float sum = 0;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          scores[n][i] = exp2_of(fmaf(scores[n][i], scale, -new_max));
          sum += scores[n][i];
        }
      }
      total[half] = total[half] * correction + sum;
#pragma unroll
      for (int n = 0; n < kSumTiles; ++n) {
        sums[n][2 * half] *= correction;
        sums[n][2 * half + 1] *= correction;
      }
    }
  }
};

}  // namespace dstrain::DSTRAIN_BACKEND
