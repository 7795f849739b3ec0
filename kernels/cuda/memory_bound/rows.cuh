// Kernels over rows: a row belongs to a group of warps, which holds it in registers between its passes
// over it. How many warps depends on the row's length alone, and so does the order of its sums.
#pragma once

#include <algorithm>

#include "kernels/cuda/memory_bound/access.cuh"

namespace dstrain::DSTRAIN_BACKEND {

inline constexpr int kRowPack = 8;     // elements that a thread loads at once
inline constexpr int kHeldPacks = 4;   // and holds of them, where the row fits
inline constexpr int kMostWarps = 16;  // of a group
inline constexpr int kRowThreads = 32 * kMostWarps;

// Threads of a block: x those of a row, y rows (one where a row has more than one warp).
struct RowShape {
  Grid grid;
  bool held;  // whether a group holds the row

  RowShape(int64_t rows, int64_t c) {
    const int64_t of_warp = 32 * kRowPack * kHeldPacks;
    int64_t warps = 1;
    while (warps < kMostWarps && c > warps * of_warp) warps *= 2;
    held = c <= warps * of_warp;
    const unsigned rows_of_block = warps == 1 ? 4 : 1;
    grid.blocks = dim3(static_cast<unsigned>((rows + rows_of_block - 1) / rows_of_block));
    grid.threads = dim3(static_cast<unsigned>(32 * warps), rows_of_block);
  }
};

__device__ __forceinline__ int64_t row_of_group() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
}

// The sum over the threads of a row: within warps, then warp by warp.
__device__ __forceinline__ float group_sum(float v) {
  __shared__ float of_warp[kMostWarps];
#pragma unroll
  for (int m = 16; m > 0; m /= 2) v += __shfl_xor_sync(~0u, v, m);
  if (blockDim.x == 32) return v;
  __syncthreads();  // the last sum may still be read
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = v;
  __syncthreads();
  v = 0;
  for (unsigned w = 0; w < blockDim.x / 32; ++w) v += of_warp[w];
  return v;
}

// f(k, at) for this thread's packs of a row of c elements; k counts them, where they are held (kHeld > 0),
// and is 0 otherwise. A thread has the same elements wherever the row starts.
template <int kHeld, class F>
__device__ __forceinline__ void for_row_packs(int64_t c, const F& f) {
  const int64_t begin = kRowPack * static_cast<int64_t>(threadIdx.x);
  const int64_t step = kRowPack * static_cast<int64_t>(blockDim.x);
  if constexpr (kHeld > 0) {
#pragma unroll
    for (int k = 0; k < kHeld; ++k)
      if (begin + k * step < c) f(k, begin + k * step);
  } else {
    for (int64_t at = begin; at < c; at += step) f(0, at);
  }
}

}  // namespace dstrain::DSTRAIN_BACKEND
