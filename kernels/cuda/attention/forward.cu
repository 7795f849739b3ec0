// The forward pass of attention on tensor cores. A block computes 64 kRowTiles queries of one head and loops over
// the keys they see, kColumns at a time; a warp computes 16 rows of every row tile. While one block product
// runs, the operand of the next one is copied (keys, then values).
//
// Without a window, lower bounds, per head of T queries: 2 D T^2 FLOPs on tensor cores (the causal half of 4 D T^2, all of
// it where scores are not causal), T^2/2 exponentials, and 8 T D + 4 T bytes of memory (q, k, v read once, y and lse written once). Blocks of one head run
// at the same time, so after the first block its keys and values come from the L2 cache.
#include "kernels/cuda/attention/kernels.cuh"
#include "kernels/cuda/attention/rows.cuh"
#include "kernels/cuda/attention/softmax.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

// SASS <*, 64, 2, 64, true, *>: threads 128, blocks 2, shared 32768
// SASS <*, 128, 1, 64, true, *>: threads 128, blocks 2, shared 49152
template <class T, int kWidth, int kRowTiles, int kColumns, bool kVector, bool kDropout,
          Scores kScores>
__global__ void __launch_bounds__(kThreads, 2) forward_kernel(AttentionArguments a) {
  constexpr int kRows = kRowTiles * kRowStep;
  constexpr bool kFirst = kScores == Scores::general;
  T* const query_tile = dynamic_shared<T>();
  T* const key_tile = query_tile + kRows * kWidth;
  T* const value_tile = key_tile + kColumns * kWidth;

  const Head head = query_head_of_block(a);
  const HeadRows<const T> keys = head.of_keys(static_cast<const T*>(a.k)),
                          values = head.of_keys(static_cast<const T*>(a.v));
  const DropoutSource dropout = kDropout ? head.dropout() : DropoutSource();
  const Lane lane;
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * kWarpRows;
  // The last rows see the most keys, so they start first.
  const int first_row = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kRows;
  const int seq = static_cast<int>(a.seq),
            end = kScores == Scores::all ? seq : min(first_row + kRows, seq);

  int first_keys[kRowTiles][2];  // that the lane's rows see, beside the causal mask
  if constexpr (kFirst) find_first_keys<kRowTiles>(first_keys, head, first_row + warp_row, lane);
  RunningSoftmax softmax[kRowTiles];
  float sums[kRowTiles][kWidth / 8][4] = {};

  // Adds kColumns keys from `column` on. kOffset: column - first_row, or kBefore if every row sees all keys, or kLast if it
  // does and the last keys of the step may be past the end.
  const auto add_keys = [&](int column, auto offset) {
    constexpr int kOffset = decltype(offset)::value;
    constexpr int kBegin = kOffset / kRowStep;  // row tiles before it see none of the keys
    wait_copies();
    __syncthreads();
    load_tile<kColumns, kWidth, kVector, 1>(value_tile, values, column);

    float scores[kRowTiles][kColumns / 8][4] = {};
    add_scores<kBegin, kRowTiles, kRowTiles, kColumns, kWidth>(scores, query_tile, warp_row,
                                                               key_tile);

    uint32_t weights[kRowTiles][kColumns / 16][4];
#pragma unroll
    for (int r = kBegin; r < kRowTiles; ++r) {
      const int row = first_row + r * kRowStep + warp_row;
      if (kOffset >= 0 && kOffset + kColumns > r * kRowStep)
        hide_future_keys(scores[r], row, column, lane);
      if constexpr (kOffset == kLast) hide_columns_from(scores[r], seq - column, lane);
      if constexpr (kFirst) hide_keys_before(scores[r], first_keys[r], column, lane);
      softmax[r].template step<kFirst>(scores[r], sums[r], a.exponent_scale);
      if constexpr (kDropout)
        clear_dropped(scores[r], KeptKeys<kColumns>(dropout, row, column, lane), lane);
      pack_weights<T>(weights[r], scores[r]);
    }

    wait_copies();
    __syncthreads();
    if (column + kColumns < end)
      load_tile<kColumns, kWidth, kVector, 1>(key_tile, keys, column + kColumns);
    add_product<kBegin, kRowTiles, kRowTiles, kColumns, kWidth>(sums, weights, value_tile);
  };
  const int begin = kFirst ? head.first_key(first_row) / kColumns * kColumns : 0;
  load_tile<kRows, kWidth, kVector, 1>(query_tile, head.of_queries(static_cast<const T*>(a.q)),
                                       first_row);
  load_tile<kColumns, kWidth, kVector, 1>(key_tile, keys, begin);
  if constexpr (kScores == Scores::all) {
    in_all_columns<kColumns>(end, add_keys);
  } else {
#pragma unroll 1
    for (int column = begin; column < first_row; column += kColumns)
      add_keys(column, std::integral_constant<int, kBefore>());
    on_diagonal<kRows, kColumns>([&](auto offset) {
      const int column = first_row + decltype(offset)::value;
      if (column < end) add_keys(column, offset);
    });
  }

#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
    const int row = first_row + r * kRowStep + warp_row;
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float total = quad_sum(softmax[r].total[half]);
      const int at = row + lane.g + half * 8;
      factor[half] = a.drop_scale / total;
      if (lane.q == 0 && at < seq)
        a.lse[head.statistics() + at] = (softmax[r].max[half] + log2f(total)) * kLn2;
    }
    store_fragments<kWidth, kVector>(sums[r], factor[0], factor[1], query_tile,
                                     r * kRowStep + warp_row, head.rows(static_cast<T*>(a.y)), row);
  }
}

template <class T, int kWidth, int kRowTiles, int kColumns>
void launch_tiles(const AttentionArguments& a, int64_t samples, const LaunchContext& context) {
  constexpr int kRows = kRowTiles * kRowStep;
  constexpr size_t kShared = sizeof(T) * kWidth * (kRows + 2 * kColumns);
  with_variant(a, false, [&](auto vector, auto dropout, auto scores) {
    const auto kernel = forward_kernel<T, kWidth, kRowTiles, kColumns, decltype(vector)::value,
                                       decltype(dropout)::value, decltype(scores)::value>;
    allow_shared("attention", kernel, kShared);
    launch(context.stream, "attention", grid_of<kRows>(a, a.heads, samples, kShared), kernel, a);
  });
}

}  // namespace

template <class T>
void launch_forward(const AttentionArguments& a, int64_t samples, const LaunchContext& context) {
  if (a.head_size <= 64) return launch_tiles<T, 64, 2, 64>(a, samples, context);
  launch_tiles<T, 128, 1, 64>(a, samples, context);
}
template void launch_forward<bf16>(const AttentionArguments&, int64_t, const LaunchContext&);
template void launch_forward<f16>(const AttentionArguments&, int64_t, const LaunchContext&);

}  // namespace dstrain::DSTRAIN_BACKEND
