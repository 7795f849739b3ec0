// Operations of attention on a warp's fragments: sums over a row, the causal mask, the dropout mask, and rounding to
// operands of the next product.
#pragma once

#include "kernels/cuda/attention/dropout.cuh"
#include "kernels/cuda/attention/tiles.cuh"

namespace dstrain::DSTRAIN_BACKEND {

inline constexpr float kLog2e = 1.44269504088896341f;
inline constexpr float kLn2 = 0.69314718055994531f;

// The position of the calling thread in its warp, and the elements of a fragment that it holds.
struct Lane {
  int g, q;  // lane = 4 g + q: rows g and g + 8, columns 2q and 2q + 1 of every 8
  __device__ Lane()
      : g(static_cast<int>(threadIdx.x) % 32 / 4), q(static_cast<int>(threadIdx.x) % 4) {}
  // Row and column of element i of column tile n in a 16-row fragment.
  __device__ int row(int i) const { return g + i / 2 * 8; }
  __device__ int column(int n, int i) const { return n * 8 + q * 2 + i % 2; }
};

__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}
__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}

// A block's rows lie around the diagonal of the scores in the steps whose columns begin 0, kColumns, ... after its
// first row. Calls f with these offsets as constants, so that no other step tests which keys a query sees.
template <int kRows, int kColumns, int kOffset = 0, class F>
__device__ __forceinline__ void on_diagonal(const F& f) {
  if constexpr (kOffset < kRows) {
    f(std::integral_constant<int, kOffset>());
    on_diagonal<kRows, kColumns, kOffset + kColumns>(f);
  }
}
// Instead of an offset: a step off the diagonal, and one off the diagonal whose last columns may be past the last row.
inline constexpr int kBefore = -1, kLast = -2;

// Calls f with the steps of [0, end), if there is no diagonal: f(column, offset).
template <int kColumns, class F>
__device__ __forceinline__ void in_all_columns(int end, const F& f) {
  int column = 0;
#pragma unroll 1
  for (; column + kColumns <= end; column += kColumns)
    f(column, std::integral_constant<int, kBefore>());
  if (column < end) f(column, std::integral_constant<int, kLast>());
}

// Hides keys past the last one: sets scores of fragment columns from `end` on to -infinity.
template <int kTiles>
__device__ __forceinline__ void hide_columns_from(float (&scores)[kTiles][4], int end,
                                                  const Lane& lane) {
#pragma unroll
  for (int n = 0; n < kTiles; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (lane.column(n, i) >= end) scores[n][i] = -INFINITY;
}

// Hides future keys: sets scores of fragment rows (queries from `row` on) and columns (keys from `column` on) to
// -infinity where the key is after the query.
template <int kTiles>
__device__ __forceinline__ void hide_future_keys(float (&scores)[kTiles][4], int64_t row,
                                                 int64_t column, const Lane& lane) {
  const auto ahead = static_cast<int>(column - row);
#pragma unroll
  for (int n = 0; n < kTiles; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (ahead + lane.column(n, i) > lane.row(i)) scores[n][i] = -INFINITY;
}

// The same for fragments whose rows are keys and columns queries.
template <int kTiles>
__device__ __forceinline__ void hide_past_queries(float (&scores)[kTiles][4], int64_t row,
                                                  int64_t column, const Lane& lane) {
  const auto ahead = static_cast<int>(column - row);
#pragma unroll
  for (int n = 0; n < kTiles; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (ahead + lane.column(n, i) < lane.row(i)) scores[n][i] = -INFINITY;
}

// Hides keys before the window or the document: sets scores of fragment columns (keys from `column` on) to -infinity where
// the key is before the first one that its row (a query) sees. first_keys: of rows g (half 0) and g + 8 (half 1).
template <int kTiles>
__device__ __forceinline__ void hide_keys_before(float (&scores)[kTiles][4],
                                                 const int (&first_keys)[2], int column,
                                                 const Lane& lane) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int limit = first_keys[half] - column;
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i)
        if (lane.column(n, i) < limit) scores[n][i] = -INFINITY;
  }
}

// Hides queries after the window or the document, for fragments whose rows are keys and columns queries. end_queries: the
// end of the queries that see keys g (half 0) and g + 8 (half 1).
template <int kTiles>
__device__ __forceinline__ void hide_queries_after(float (&scores)[kTiles][4],
                                                   const int (&end_queries)[2], int column,
                                                   const Lane& lane) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int limit = end_queries[half] - column;
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i)
        if (lane.column(n, i) >= limit) scores[n][i] = -INFINITY;
  }
}

// The dropout mask of 16 queries x kColumns keys, for fragments whose rows are queries.
template <int kColumns>
class KeptKeys {
 public:
  // The four lanes of a row compute a byte each and combine them.
  __device__ __forceinline__ KeptKeys(const DropoutSource& source, int64_t row, int64_t column,
                                      const Lane& lane) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint64_t first = source.element(row + lane.g + half * 8, column);
#pragma unroll
      for (int w = 0; w < kColumns / 32; ++w) {
        uint32_t bits = source.kept_byte(first + static_cast<uint64_t>(w * 32 + lane.q * 8))
                        << (lane.q * 8);
        bits |= __shfl_xor_sync(~0u, bits, 1);
        words_[half][w] = bits | __shfl_xor_sync(~0u, bits, 2);
      }
    }
  }
  __device__ __forceinline__ bool kept(int n, int i, const Lane& lane) const {
    const int column = lane.column(n, i);
    return (words_[i / 2][n / 4] >> (column % 32) & 1u) != 0;
  }

 private:
  uint32_t words_[2][kColumns / 32];  // a bit per column, for rows g and g + 8
};

// The dropout mask of 16 keys x kColumns queries, for fragments whose rows are keys.
template <int kColumns>
class KeptQueries {
 public:
  // For every 16 queries, each lane computes the byte of one query and 8 of the 16 keys.
  __device__ __forceinline__ KeptQueries(const DropoutSource& source, int64_t row, int64_t column,
                                         const Lane& lane) {
    const int id = lane.g * 4 + lane.q, query = id % 16, upper = id / 16;
#pragma unroll
    for (int w = 0; w < kColumns / 16; ++w) {
      const uint32_t mine =
          source.kept_byte(source.element(column + w * 16 + query, row + upper * 8));
      const uint32_t other = __shfl_xor_sync(~0u, mine, 16);
      const uint32_t keys = upper != 0 ? other | mine << 8 : mine | other << 8;
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const uint32_t even = __shfl_sync(~0u, keys, n * 8 + lane.q * 2);
        const uint32_t odd = __shfl_sync(~0u, keys, n * 8 + lane.q * 2 + 1);
        words_[2 * w + n] = even | odd << 16;
      }
    }
  }
  __device__ __forceinline__ bool kept(int n, int i, const Lane& lane) const {
    return (words_[n] >> (i % 2 * 16 + lane.row(i)) & 1u) != 0;
  }

 private:
  uint32_t
      words_[kColumns / 8];  // for every 8 queries: 16 keys of query 2q, then 16 of query 2q + 1
};

template <class Kept, int kTiles>
__device__ __forceinline__ void clear_dropped(float (&weights)[kTiles][4], const Kept& kept,
                                              const Lane& lane) {
#pragma unroll
  for (int n = 0; n < kTiles; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (!kept.kept(n, i, lane)) weights[n][i] = 0;
}

// The C fragments of two neighbouring column tiles are the A operand of a product over their columns.
template <class T>
__device__ __forceinline__ void pack_step(uint32_t (&a)[4], const float (&low)[4],
                                          const float (&high)[4]) {
  a[0] = pack<T>(low[0], low[1]);
  a[1] = pack<T>(low[2], low[3]);
  a[2] = pack<T>(high[0], high[1]);
  a[3] = pack<T>(high[2], high[3]);
}
template <class T, int kSteps>
__device__ __forceinline__ void pack_weights(uint32_t (&a)[kSteps][4],
                                             const float (&c)[2 * kSteps][4]) {
#pragma unroll
  for (int s = 0; s < kSteps; ++s) pack_step<T>(a[s], c[2 * s], c[2 * s + 1]);
}

}  // namespace dstrain::DSTRAIN_BACKEND
