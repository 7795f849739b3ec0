// Tiles of 16-bit elements in shared memory, and the block products on them.
//
// A tile row has kWidth (64 or 128) elements. A chunk of 8 elements (16 bytes) of row r is stored at position
// chunk ^ (r % 8), so that the 8 rows that one ldmatrix reads are in 8 different bank groups. Rows past T and
// columns past the head size are zero.
#pragma once

#include "kernels/cuda/attention/mma.cuh"

namespace dstrain::DSTRAIN_BACKEND {

inline constexpr int kWarps = 4;
inline constexpr int kThreads = kWarps * 32;
inline constexpr int kWarpRows = 16;                 // rows of a row tile
inline constexpr int kRowStep = kWarps * kWarpRows;  // from one row tile of a warp to the next

// Rows of one head in global memory.
template <class T>
struct HeadRows {
  T* at;       // row 0
  int stride;  // elements from one row to the next
  int rows;    // T
  int width;   // head size
};

template <int kWidth>
__device__ __forceinline__ int tile_at(int row, int chunk) {
  return row * kWidth + ((chunk ^ (row & 7)) << 3);
}

// Starts to load kRows rows from `first` on; they are loaded after wait_copies() and __syncthreads(). kVector: every
// chunk of 8 is 16-byte aligned and complete. kUnroll: copies whose addresses are in registers at a time.
template <int kRows, int kWidth, bool kVector, int kUnroll = kRows* kWidth / 8 / kThreads, class T>
__device__ __forceinline__ void load_tile(T* tile, const HeadRows<const T>& from, int first) {
  constexpr int kChunks = kWidth / 8;
  static_assert(kRows * kChunks % kThreads == 0);
#pragma unroll kUnroll
  for (int step = 0; step < kRows * kChunks / kThreads; ++step) {
    const int i = step * kThreads + static_cast<int>(threadIdx.x);
    const int row = i / kChunks, chunk = i % kChunks;
    const int left =
        first + row < from.rows ? from.width - chunk * 8 : 0;  // elements to read; 8 or more: all 8
    const T* source =
        left > 0 ? from.at + static_cast<int64_t>(first + row) * from.stride + chunk * 8 : from.at;
    T* to = tile + tile_at<kWidth>(row, chunk);
    if constexpr (kVector) {
      copy_async(to, source, left > 0);
    } else {
      for (int e = 0; e < 8; ++e) to[e] = e < left ? source[e] : T{};
    }
  }
}

// Writes a warp's 16 tile rows from `row` on, which store_fragments filled, to global rows from `first` on.
template <int kWidth, bool kVector, class T>
__device__ __forceinline__ void write_rows(const T* tile, int row, const HeadRows<T>& to,
                                           int first) {
  constexpr int kChunks = kWidth / 8;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int i = lane; i < kWarpRows * kChunks; i += 32) {
    const int r = i / kChunks, chunk = i % kChunks;
    const int left = first + r < to.rows ? to.width - chunk * 8 : 0;
    if (left <= 0) continue;
    const T* source = tile + tile_at<kWidth>(row + r, chunk);
    T* target = to.at + static_cast<int64_t>(first + r) * to.stride + chunk * 8;
    if constexpr (kVector) {
      *reinterpret_cast<uint4*>(target) = *reinterpret_cast<const uint4*>(source);
    } else {
      for (int e = 0; e < 8 && e < left; ++e) target[e] = source[e];
    }
  }
}

// Rounds a warp's 16 x kWidth sums, times a factor for each row half, into tile rows from `row` on, which no other
// warp may read, and writes them to global memory.
template <int kWidth, bool kVector, class T>
__device__ __forceinline__ void store_fragments(const float (&sums)[kWidth / 8][4],
                                                float low_factor, float high_factor, T* tile,
                                                int row, const HeadRows<T>& to, int first) {
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, q = lane % 4;
  __syncwarp();
#pragma unroll
  for (int n = 0; n < kWidth / 8; ++n) {
    uint32_t* low = reinterpret_cast<uint32_t*>(tile + tile_at<kWidth>(row + g, n)) + q;
    uint32_t* high = reinterpret_cast<uint32_t*>(tile + tile_at<kWidth>(row + g + 8, n)) + q;
    *low = pack<T>(sums[n][0] * low_factor, sums[n][1] * low_factor);
    *high = pack<T>(sums[n][2] * high_factor, sums[n][3] * high_factor);
  }
  __syncwarp();
  write_rows<kWidth, kVector>(tile, row, to, first);
}

// Loads rows row .. row+15, columns 16 step .. 16 step + 15 of a tile as an A operand.
template <int kWidth, class T>
__device__ __forceinline__ void load_a(uint32_t (&a)[4], const T* tile, int row, int step) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  ldmatrix(a, tile + tile_at<kWidth>(row + lane % 16, 2 * step + lane / 16));
}

// scores[r][n] += rows of `left` (row tile r) times rows of `right` (8n..8n+7), over the width.
// Only row tiles [kBegin, kEnd) take part: a test of the running program here would make the warp wait for its lanes
// before every product.
template <int kBegin, int kEnd, int kRowTiles, int kColumns, int kWidth, class T>
__device__ __forceinline__ void add_scores(float (&scores)[kRowTiles][kColumns / 8][4],
                                           const T* left, int left_row, const T* right) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int step = 0; step < kWidth / 16; ++step) {
    uint32_t a[kRowTiles][4];
#pragma unroll
    for (int r = kBegin; r < kEnd; ++r) load_a<kWidth>(a[r], left, left_row + r * kRowStep, step);
#pragma unroll
    for (int n = 0; n < kColumns / 8; n += 2) {
      uint32_t b[4];
      ldmatrix(b,
               right + tile_at<kWidth>(n * 8 + lane / 16 * 8 + lane % 8, 2 * step + lane / 8 % 2));
#pragma unroll
      for (int r = kBegin; r < kEnd; ++r) {
        mma<T>(scores[r][n], a[r], b[0], b[1]);
        mma<T>(scores[r][n + 1], a[r], b[2], b[3]);
      }
    }
  }
}

// sums[r] (16 x kWidth) += weights[r] (16 x kColumns, as packed A operands) times `right` (kColumns x
// kWidth), for row tiles [kBegin, kEnd).
template <int kBegin, int kEnd, int kRowTiles, int kColumns, int kWidth, class T>
__device__ __forceinline__ void add_product(float (&sums)[kRowTiles][kWidth / 8][4],
                                            const uint32_t (&weights)[kRowTiles][kColumns / 16][4],
                                            const T* right) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int step = 0; step < kColumns / 16; ++step) {
#pragma unroll
    for (int n = 0; n < kWidth / 8; n += 2) {
      uint32_t b[4];
      ldmatrix_trans(b, right + tile_at<kWidth>(step * 16 + lane % 16, n + lane / 16));
#pragma unroll
      for (int r = kBegin; r < kEnd; ++r) {
        mma<T>(sums[r][n], weights[r][step], b[0], b[1]);
        mma<T>(sums[r][n + 1], weights[r][step], b[2], b[3]);
      }
    }
  }
}

}  // namespace dstrain::DSTRAIN_BACKEND
