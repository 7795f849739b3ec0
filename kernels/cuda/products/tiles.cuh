// Tiles of a product by ordinary multiply-adds: a block of kBlock threads computes 32 x 32 elements of the result, a thread 4 x 4
// of them; operands are widened when they are copied into shared memory.
// Invariant: an element is one chain of multiply-adds over ascending k, wherever in the result it is.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.cuh"

namespace dstrain::DSTRAIN_BACKEND {

inline constexpr int kTile = 32;   // rows and columns per block
inline constexpr int kDepth = 16;  // values of k per step
inline constexpr int kSide = 4;    // rows and columns per thread
inline constexpr int kAcross = kTile / kSide;
inline constexpr int kBlock = kAcross * kAcross;

// Element (i, j) of an operand is at[i * row + j * column]; one of the strides is 1.
template <class T>
struct Operand {
  const T* at;
  int64_t row, column;
};

// to[r][d] = element (first + r, depth + d) of an operand of `rows` x `depths`, 0 past its end.
// Neighbouring threads read neighbouring addresses.
template <class T>
__device__ void load_panel(float (&to)[kTile][kDepth + 1], const Operand<T>& from, int64_t first,
                           int64_t rows, int64_t depth, int64_t depths) {
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kDepth; i += kBlock) {
    const bool along_depth = from.column == 1;
    const int r = along_depth ? i / kDepth : i % kTile, d = along_depth ? i % kDepth : i / kTile;
    const bool inside = first + r < rows && depth + d < depths;
    to[r][d] = inside ? widen(from.at[(first + r) * from.row + (depth + d) * from.column]) : 0.0f;
  }
}

// The place of a thread's elements in the tile.
__device__ inline int tile_row() {
  return static_cast<int>(threadIdx.x) / kAcross * kSide;
}
__device__ inline int tile_column() {
  return static_cast<int>(threadIdx.x) % kAcross * kSide;
}

// Adds a (m,k) b (k,n) to this thread's elements of the tile that begins at (first_row, first_column). All threads of the
// block call it.
template <class T>
__device__ void add_products(const Operand<T>& a, const Operand<T>& b, int64_t m, int64_t n,
                             int64_t k, int64_t first_row, int64_t first_column,
                             float (&sums)[kSide][kSide]) {
  __shared__ float left[kTile][kDepth + 1], right[kTile][kDepth + 1];
  const int row = tile_row(), column = tile_column();
  const Operand<T> columns{b.at, b.column, b.row};  // b transposed
  for (int64_t depth = 0; depth < k; depth += kDepth) {
    __syncthreads();
    load_panel(left, a, first_row, m, depth, k);
    load_panel(right, columns, first_column, n, depth, k);
    __syncthreads();
#pragma unroll
    for (int d = 0; d < kDepth; ++d)
#pragma unroll
      for (int r = 0; r < kSide; ++r)
#pragma unroll
        for (int c = 0; c < kSide; ++c) sums[r][c] += left[row + r][d] * right[column + c][d];
  }
}

}  // namespace dstrain::DSTRAIN_BACKEND
