// What the kernels of this folder share: what they take, their operands' tensor maps, and which rows of which head a block
// has.
#pragma once

#include <algorithm>

#include "kernels/cuda/attention/hopper/bulk_copy.cuh"
#include "kernels/cuda/attention/kernels.cuh"
#include "kernels/cuda/memory_bound/access.cuh"

namespace dstrain::DSTRAIN_BACKEND {

// Returns whether the kernels take an attention with operands of 16 bits.
bool hopper_takes(const AttentionArguments& a, int64_t samples, const LaunchContext& context);

// Maps of the operands that a kernel reads; the others are not used. Those of rows have the coordinates element, row, head
// and sample and panels as boxes; those of statistics are vectors of B H T floats. T: bf16 or f16.
struct TensorMaps {
  CUtensorMap q, k, v, d_y, lse, delta;
};
template <class T>
TensorMaps forward_maps(const AttentionArguments& a, int64_t samples);
template <class T>
TensorMaps gradient_maps(const AttentionArguments& a, int64_t samples);

// The rows of a head that a block has: row tiles of 64 from first_tile on, one for each of its `groups` warpgroups; the last
// block of a head may have fewer tiles.
struct BlockRows {
  int first_tile, groups;
  int head, sample;
};

// The order of blocks. Those of `heads_at_once` heads are one after the other, so that their keys and values stay in the L2
// cache; of these, blocks with the most work start first.
struct BlockOrder {
  int row_tiles, blocks_of_head;  // of 64 rows; of kGroups row tiles
  int heads, all_heads;           // of a sample; of all samples
  int heads_at_once;

  // kLastFirst: the last rows have the most work, otherwise the first.
  template <int kGroups, bool kLastFirst>
  __device__ __forceinline__ BlockRows rows(int block) const {
    const int first_head = block / (heads_at_once * blocks_of_head) * heads_at_once;
    const int count = min(heads_at_once, all_heads - first_head);
    const int left = block - first_head * blocks_of_head;
    const int head = first_head + left % count, at = left / count;
    const int first = (kLastFirst ? blocks_of_head - 1 - at : at) * kGroups;
    return {first, min(kGroups, row_tiles - first), head % heads, head / heads};
  }
};

// heads: those of a sample that have blocks, of queries or of keys.
template <int kGroups>
BlockOrder order_of(const AttentionArguments& a, int64_t samples, int heads) {
  constexpr int64_t kCached = int64_t{32} << 20;  // bytes of two operands of the heads at once
  const int64_t head_bytes = 4 * a.seq * a.head_size;
  const auto row_tiles = static_cast<int>((a.seq + kPanelRows - 1) / kPanelRows);
  const int all_heads = static_cast<int>(samples) * heads;
  const int most = static_cast<int>(std::clamp<int64_t>(kCached / head_bytes, 1, all_heads));
  const int times = (all_heads + most - 1) / most;
  return {row_tiles, (row_tiles + kGroups - 1) / kGroups, heads, all_heads,
          (all_heads + times - 1) / times};
}

template <int kGroups>
Grid grid_of(const BlockOrder& order, size_t shared) {
  return {dim3(static_cast<unsigned>(order.all_heads * order.blocks_of_head)),
          dim3(kGroups * kGroupThreads), shared};
}

__device__ __forceinline__ Head head_of(const AttentionArguments& a, const BlockRows& rows) {
  return {a, rows.head, rows.head / a.group, rows.sample};
}

// Returns whether queries see fewer keys than all until their own.
inline bool has_first_keys(const AttentionArguments& a) {
  return a.window < a.seq || a.documents != nullptr;
}

// Returns the first tile of keys that a row of a tile of queries sees.
__device__ __forceinline__ int first_key_tile(const Head& head, int tile) {
  return head.first_key(tile * kPanelRows) / kPanelRows;
}
// Returns the end of the tiles of queries that see a row of a tile of keys.
__device__ __forceinline__ int end_query_tile(const Head& head, int tile) {
  const int last = min((tile + 1) * kPanelRows, static_cast<int>(head.a.seq)) - 1;
  return (head.end_query(last) + kPanelRows - 1) / kPanelRows;
}

// The number of the calling thread's warpgroup, which the compiler then knows to be the same in a warp.
__device__ __forceinline__ int warpgroup() {
  return __shfl_sync(~0u, static_cast<int>(threadIdx.x) / kGroupThreads, 0);
}

// Computes the dropout mask of a tile, of type Kept, or nothing where there is no dropout. To be called before the tile's
// scores take registers.
template <class Kept, bool kDropout>
__device__ __forceinline__ auto kept_of(const DropoutSource& dropout, int row, int column,
                                        const Lane& lane) {
  if constexpr (kDropout)
    return Kept(dropout, row, column, lane);
  else
    return std::false_type();
}

// Rounds a warpgroup's 64 x kWidth sums, times `low` for rows g and `high` for rows g + 8, and writes them to rows from
// `first` on. tile: 64 x kWidth elements that no other group uses.
template <int kWidth, class T>
__device__ __forceinline__ void store_group(const float (&sums)[kWidth / 8][4], float low,
                                            float high, T* tile, int group, const HeadRows<T>& to,
                                            int first) {
  const int row = static_cast<int>(threadIdx.x) % kGroupThreads / 32 * kWarpRows;
  sync_group(1 + group, kGroupThreads);  // all warps have read the tile
  store_fragments<kWidth, true>(sums, low, high, tile, row, to, first + row);
}

}  // namespace dstrain::DSTRAIN_BACKEND
