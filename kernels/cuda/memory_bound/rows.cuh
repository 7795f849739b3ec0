// Kernels over rows: a group of warps owns a row and holds it in registers between passes. The number of warps, and
// so the order of the sums, depends on the row's length alone.
#pragma once

#include <algorithm>

#include "kernels/cuda/memory_bound/access.cuh"

namespace dstrain::DSTRAIN_BACKEND {

inline constexpr int kRowPack = 8;     // elements that a thread loads at once
inline constexpr int kHeldPacks = 4;   // packs that a thread holds, if the row fits
inline constexpr int kMostWarps = 16;  // warps in a group
inline constexpr int kRowThreads = 32 * kMostWarps;

// How a launch divides the rows among blocks and threads. A block has x threads per row and y rows; y is 1 if a row
// has more than one warp.
struct RowShape {
  Grid grid;
  bool held;  // whether a group holds the row in registers

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

// Returns the sum over the threads of a row: first within warps, then over warps in order.
__device__ __forceinline__ float group_sum(float v) {
  __shared__ float of_warp[kMostWarps];
#pragma unroll
  for (int m = 16; m > 0; m /= 2) v += __shfl_xor_sync(~0u, v, m);
  if (blockDim.x == 32) return v;
  __syncthreads();  // threads may still read the previous sum
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = v;
  __syncthreads();
  v = 0;
  for (unsigned w = 0; w < blockDim.x / 32; ++w) v += of_warp[w];
  return v;
}

// Calls f(k, at) for this thread's packs of a row of c elements. k numbers the packs if they are held (kHeld > 0),
// else it is 0. A thread has the same elements wherever the row starts.
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

template <bool kAligned, class T>
using RowPack = PackOf<kAligned, T, kRowPack>;

// Whether all operands of a row are loaded before the first is used: 16-bit ones fit in registers.
template <class T, int kHeld, bool kAligned>
constexpr bool kEarly = kAligned&& kHeld > 0 && sizeof(T) == 2;

// Issues the loads of all of this thread's packs of a row that is held.
template <int kHeld, class Pack, class T>
__device__ __forceinline__ void load_row(Pack* packs, const T* row, int64_t c) {
  const int64_t begin = kRowPack * static_cast<int64_t>(threadIdx.x);
  const int64_t step = kRowPack * static_cast<int64_t>(blockDim.x);
#pragma unroll
  for (int k = 0; k < kHeld; ++k) packs[k].load(row, begin + k * step, c);
}

}  // namespace dstrain::DSTRAIN_BACKEND
