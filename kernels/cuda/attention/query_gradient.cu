// d_q of attention on tensor cores: rows are queries, as in the forward pass. With P = exp(score - lse), the dropout
// mask M and the scale c of kept weights: dS = P (c M (d_y v^T) - sum(d_y y)), d_q = dS k / divisor. The block
// products compute with dS / c; the factor c is applied to their sums at the end. The keys and values of the next
// step are copied while this step computes.
//
// Without a window, lower bounds, per head of T queries: 3 D T^2 FLOPs (the causal half of three products; twice as many
// where scores are not causal) and 10 T D + 8 T bytes.
// key_gradients.cu computes d_k and d_v in a pass of its own, so that every sum has one owner and a fixed order.
// Scores are therefore computed twice: 7 products instead of 5.
#include "kernels/cuda/attention/kernels.cuh"
#include "kernels/cuda/attention/rows.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

// SASS <*, 64, 2, 32, true, *>: threads 128, blocks 2, shared 49152
// SASS <*, 128, 1, 32, true, *>: threads 128, blocks 2, shared 65536
template <class T, int kWidth, int kRowTiles, int kColumns, bool kVector, bool kDropout,
          Scores kScores>
__global__ void __launch_bounds__(kThreads, 2) query_gradient_kernel(AttentionArguments a) {
  constexpr int kRows = kRowTiles * kRowStep, kStage = 2 * kColumns * kWidth;
  constexpr bool kFirst = kScores == Scores::general;
  T* const query_tile = dynamic_shared<T>();
  T* const d_y_tile = query_tile + kRows * kWidth;
  T* const stages = d_y_tile + kRows * kWidth;  // two stages of keys and values

  const Head head = query_head_of_block(a);
  const HeadRows<const T> keys = head.of_keys(static_cast<const T*>(a.k)),
                          values = head.of_keys(static_cast<const T*>(a.v));
  const DropoutSource dropout = kDropout ? head.dropout() : DropoutSource();
  const Lane lane;
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * kWarpRows;
  const int first_row = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kRows;
  const int seq = static_cast<int>(a.seq),
            end = kScores == Scores::all ? seq : min(first_row + kRows, seq);

  int first_keys[kRowTiles][2];  // that the lane's rows see, beside the causal mask
  if constexpr (kFirst) find_first_keys<kRowTiles>(first_keys, head, first_row + warp_row, lane);
  float shift[kRowTiles][2], delta[kRowTiles][2];
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row + r * kRowStep + warp_row + lane.g + half * 8;
      // Queries past the end get weights of 2^-infinity = 0.
      shift[r][half] = row < seq ? a.lse[head.statistics() + row] * kLog2e : INFINITY;
      delta[r][half] = row < seq ? a.delta[head.statistics() + row] : 0;
    }
  }
  float sums[kRowTiles][kWidth / 8][4] = {};

  const auto load_stage = [&](T* stage, int column) {
    load_tile<kColumns, kWidth, kVector>(stage, keys, column);
    load_tile<kColumns, kWidth, kVector>(stage + kColumns * kWidth, values, column);
  };
  const int begin = kFirst ? head.first_key(first_row) / kColumns * kColumns : 0;
  load_tile<kRows, kWidth, kVector>(query_tile, head.of_queries(static_cast<const T*>(a.q)),
                                    first_row);
  load_tile<kRows, kWidth, kVector>(d_y_tile, head.rows(static_cast<const T*>(a.d_y)), first_row);
  load_stage(stages, begin);
  int now = 0;
  // Adds kColumns keys from `column` on, with the offset as in forward.cu. Warps whose rows see none of the keys
  // compute zeros: they would wait for the others.
  const auto add_keys = [&](int column, auto offset) {
    constexpr int kOffset = decltype(offset)::value;
    constexpr int kBegin = kOffset / kRowStep;
    wait_copies();
    __syncthreads();
    if (column + kColumns < end) load_stage(stages + (now ^ 1) * kStage, column + kColumns);
    const T* const key_tile = stages + now * kStage;
    const T* const value_tile = key_tile + kColumns * kWidth;

    float scores[kRowTiles][kColumns / 8][4] = {}, d_weights[kRowTiles][kColumns / 8][4] = {};
    add_scores<kBegin, kRowTiles, kRowTiles, kColumns, kWidth>(scores, query_tile, warp_row,
                                                               key_tile);
    add_scores<kBegin, kRowTiles, kRowTiles, kColumns, kWidth>(d_weights, d_y_tile, warp_row,
                                                               value_tile);

    uint32_t d_scores[kRowTiles][kColumns / 16][4];
#pragma unroll
    for (int r = kBegin; r < kRowTiles; ++r) {
      const int row = first_row + r * kRowStep + warp_row;
      if (kOffset >= 0 && kOffset + kColumns > r * kRowStep)
        hide_future_keys(scores[r], row, column, lane);
      if constexpr (kOffset == kLast) hide_columns_from(scores[r], seq - column, lane);
      if constexpr (kFirst) hide_keys_before(scores[r], first_keys[r], column, lane);
      if constexpr (kDropout)
        clear_dropped(d_weights[r], KeptKeys<kColumns>(dropout, row, column, lane), lane);
#pragma unroll
      for (int n = 0; n < kColumns / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          d_weights[r][n][i] = exp2_of(fmaf(scores[r][n][i], a.exponent_scale, -shift[r][i / 2])) *
                               (d_weights[r][n][i] - delta[r][i / 2]);
      }
      pack_weights<T>(d_scores[r], d_weights[r]);
    }
    add_product<kBegin, kRowTiles, kRowTiles, kColumns, kWidth>(sums, d_scores, key_tile);
    now ^= 1;
  };
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

  const float factor = a.drop_scale * a.score_scale;
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
    const int row = r * kRowStep + warp_row;
    store_fragments<kWidth, kVector>(sums[r], factor, factor, query_tile, row,
                                     head.of_queries(static_cast<T*>(a.d_q)), first_row + row);
  }
}

template <class T, int kWidth, int kRowTiles, int kColumns>
void launch_tiles(const AttentionArguments& a, int64_t samples, const LaunchContext& context) {
  constexpr int kRows = kRowTiles * kRowStep;
  constexpr size_t kShared = sizeof(T) * kWidth * (2 * kRows + 4 * kColumns);
  with_variant(a, false, [&](auto vector, auto dropout, auto scores) {
    const auto kernel =
        query_gradient_kernel<T, kWidth, kRowTiles, kColumns, decltype(vector)::value,
                              decltype(dropout)::value, decltype(scores)::value>;
    allow_shared("attention d_q", kernel, kShared);
    launch(context.stream, "attention d_q", grid_of<kRows>(a, a.heads, samples, kShared), kernel,
           a);
  });
}

}  // namespace

template <class T>
void launch_query_gradient(const AttentionArguments& a, int64_t samples,
                           const LaunchContext& context) {
  if (a.head_size <= 64) return launch_tiles<T, 64, 2, 32>(a, samples, context);
  launch_tiles<T, 128, 1, 32>(a, samples, context);
}
template void launch_query_gradient<bf16>(const AttentionArguments&, int64_t, const LaunchContext&);
template void launch_query_gradient<f16>(const AttentionArguments&, int64_t, const LaunchContext&);

}  // namespace dstrain::DSTRAIN_BACKEND
