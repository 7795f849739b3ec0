// d_k and d_v of attention on tensor cores. Rows are keys and columns are queries, so that the warp that owns a key
// holds both of its sums: d_v = c (M P)^T d_y, d_k = dS^T q / divisor; query_gradient.cu explains the symbols. The
// heads of queries that a head of keys serves add to these sums one after the other.
// The queries of the next step are copied while this step computes.
//
// Without a window, lower bounds, per head of T queries: 4 D T^2 FLOPs (the causal half of four products; twice as many
// where scores are not causal) and 12 T D + 8 T bytes.
#include "kernels/cuda/attention/kernels.cuh"
#include "kernels/cuda/attention/rows.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

// d_weights <- dS / c.
template <int kTiles>
__device__ __forceinline__ void score_gradients(float (&d_weights)[kTiles][4],
                                                const float (&weights)[kTiles][4],
                                                const float* delta, const Lane& lane) {
#pragma unroll
  for (int n = 0; n < kTiles; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      d_weights[n][i] = weights[n][i] * (d_weights[n][i] - delta[lane.column(n, i)]);
}

// SASS <*, 64, 2, 64, true, *>: threads 128, blocks 2, shared 66560
// SASS <*, 128, 1, 32, true, *>: threads 128, blocks 2, shared 66048
template <class T, int kWidth, int kRowTiles, int kColumns, bool kVector, bool kDropout,
          Scores kScores>
__global__ void __launch_bounds__(kThreads, 2) key_gradients_kernel(AttentionArguments a) {
  constexpr int kRows = kRowTiles * kRowStep, kStage = 2 * kColumns * kWidth;
  constexpr bool kGeneral = kScores == Scores::general, kAll = kScores == Scores::all;
  T* const key_tile = dynamic_shared<T>();
  T* const value_tile = key_tile + kRows * kWidth;
  T* const stages =
      value_tile + kRows * kWidth;  // two stages of queries and d_y, then two of their statistics
  float* const statistics = reinterpret_cast<float*>(stages + 2 * kStage);

  const Head first_head = kGeneral || kAll ? member_head_of_block(a, 0) : only_head_of_block(a);
  const Lane lane;
  const int thread = static_cast<int>(threadIdx.x), warp_row = thread / 32 * kWarpRows;
  const int seq = static_cast<int>(a.seq),
            first_row = static_cast<int>(blockIdx.x) *
                        kRows;  // the first keys are seen by the most queries
  // The end of the queries that see a key of the block, and of those that see the lane's keys.
  const int end = kGeneral ? first_head.end_query(min(first_row + kRows, seq) - 1) : seq;
  int end_queries[kRowTiles][2];
  if constexpr (kGeneral) {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        end_queries[r][half] = first_head.end_query(
            min(first_row + r * kRowStep + warp_row + lane.g + half * 8, seq - 1));
  }

  float d_keys[kRowTiles][kWidth / 8][4] = {}, d_values[kRowTiles][kWidth / 8][4] = {};
  load_tile<kRows, kWidth, kVector, 1>(key_tile, first_head.of_keys(static_cast<const T*>(a.k)),
                                       first_row);
  load_tile<kRows, kWidth, kVector, 1>(value_tile, first_head.of_keys(static_cast<const T*>(a.v)),
                                       first_row);
  int now = 0;
  // Adds the queries of one head. Its first stage is the one that was read two steps ago, so no warp reads it any more.
  const auto add_head = [&](const Head& head) {
    const HeadRows<const T> queries = head.of_queries(static_cast<const T*>(a.q)),
                            d_y = head.rows(static_cast<const T*>(a.d_y));
    const DropoutSource dropout = kDropout ? head.dropout() : DropoutSource();
    // lse in units of log2, and delta, of kColumns queries: [2][kColumns].
    const auto load_stage = [&](int stage, int column) {
      T* const to = stages + stage * kStage;
      load_tile<kColumns, kWidth, kVector, 1>(to, queries, column);
      load_tile<kColumns, kWidth, kVector, 1>(to + kColumns * kWidth, d_y, column);
      if (thread >= kColumns) return;
      const int query = column + thread;
      const int64_t at = head.statistics() + query;
      float* const pair = statistics + stage * 2 * kColumns;
      // Queries past the end get weights of 2^-infinity = 0.
      pair[thread] = query < seq ? a.lse[at] * kLog2e : INFINITY;
      pair[kColumns + thread] = query < seq ? a.delta[at] : 0;
    };
    load_stage(now, kAll ? 0 : first_row);
    // Adds kColumns queries from `column` on. kOffset: column - first_row, or kBefore if they are after all keys of the
    // block. Warps whose keys are seen by none of the queries compute zeros: they would wait for the others.
    const auto add_queries = [&](int column, auto offset) {
      constexpr int kOffset = decltype(offset)::value;
      // Queries whose fragments fit in registers beside the sums.
      constexpr int kPart = kRowTiles == 1 && (kVector || kScores == Scores::causal) ? 32 : 16;
      // Row tiles from kEnd on are seen by none of the queries.
      constexpr int kNear = (kOffset + kColumns + kRowStep - 1) / kRowStep;
      constexpr int kEnd = kOffset < 0 || kNear > kRowTiles ? kRowTiles : kNear;
      wait_copies();
      __syncthreads();
      if (column + kColumns < end) load_stage(now ^ 1, column + kColumns);
        // Computed in parts, so that the fragments of a part fit in registers beside both sums.
#pragma unroll 1
      for (int part = 0; part < kColumns; part += kPart) {
        const T* const query_tile = stages + now * kStage + part * kWidth;
        const T* const d_y_tile = query_tile + kColumns * kWidth;
        const float* const shift = statistics + now * 2 * kColumns + part;
        const float* const delta = shift + kColumns;
        const int query = column + part;

        float weights[kRowTiles][kPart / 8][4] = {}, d_weights[kRowTiles][kPart / 8][4] = {};
        add_scores<0, kEnd, kRowTiles, kPart, kWidth>(weights, key_tile, warp_row, query_tile);
        add_scores<0, kEnd, kRowTiles, kPart, kWidth>(d_weights, value_tile, warp_row, d_y_tile);

        uint32_t rounded[kRowTiles][kPart / 16][4], d_scores[kRowTiles][kPart / 16][4];
#pragma unroll
        for (int r = 0; r < kEnd; ++r) {
          const int row = first_row + r * kRowStep + warp_row;
          if (kOffset >= 0 && kOffset < (r + 1) * kRowStep)
            hide_past_queries(weights[r], row, query, lane);
          if constexpr (kGeneral) hide_queries_after(weights[r], end_queries[r], query, lane);
#pragma unroll
          for (int n = 0; n < kPart / 8; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i)
              weights[r][n][i] =
                  exp2_of(fmaf(weights[r][n][i], a.exponent_scale, -shift[lane.column(n, i)]));
          }
          if constexpr (kDropout) {
            const KeptQueries<kPart> kept(dropout, row, query, lane);
            clear_dropped(d_weights[r], kept, lane);
            score_gradients(d_weights[r], weights[r], delta, lane);
            clear_dropped(weights[r], kept, lane);
          } else {
            score_gradients(d_weights[r], weights[r], delta, lane);
          }
          pack_weights<T>(rounded[r], weights[r]);
          pack_weights<T>(d_scores[r], d_weights[r]);
        }
        add_product<0, kEnd, kRowTiles, kPart, kWidth>(d_values, rounded, d_y_tile);
        add_product<0, kEnd, kRowTiles, kPart, kWidth>(d_keys, d_scores, query_tile);
      }
      now ^= 1;
    };
    if constexpr (!kAll)
      on_diagonal<kRows, kColumns>([&](auto offset) {
        const int column = first_row + decltype(offset)::value;
        if (column < end) add_queries(column, offset);
      });
      // Queries past the last one have no weights.
#pragma unroll 1
    for (int column = kAll ? 0 : first_row + kRows; column < end; column += kColumns)
      add_queries(column, std::integral_constant<int, kBefore>());
  };
  if constexpr (kGeneral || kAll) {
#pragma unroll 1
    for (int member = 0; member < a.group; ++member) add_head(member_head_of_block(a, member));
  } else {
    add_head(first_head);
  }

  __syncthreads();
  const float factor = a.drop_scale * a.score_scale;
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
    const int row = r * kRowStep + warp_row;
    store_fragments<kWidth, kVector>(d_keys[r], factor, factor, key_tile, row,
                                     first_head.of_keys(static_cast<T*>(a.d_k)), first_row + row);
    store_fragments<kWidth, kVector>(d_values[r], a.drop_scale, a.drop_scale, value_tile, row,
                                     first_head.of_keys(static_cast<T*>(a.d_v)), first_row + row);
  }
}

template <class T, int kWidth, int kRowTiles, int kColumns>
void launch_tiles(const AttentionArguments& a, int64_t samples, const LaunchContext& context) {
  constexpr int kRows = kRowTiles * kRowStep;
  constexpr size_t kShared =
      sizeof(T) * kWidth * (2 * kRows + 4 * kColumns) + sizeof(float) * 4 * kColumns;
  with_variant(a, true, [&](auto vector, auto dropout, auto scores) {
    const auto kernel =
        key_gradients_kernel<T, kWidth, kRowTiles, kColumns, decltype(vector)::value,
                             decltype(dropout)::value, decltype(scores)::value>;
    allow_shared("attention d_k, d_v", kernel, kShared);
    launch(context.stream, "attention d_k, d_v", grid_of<kRows>(a, a.kv_heads, samples, kShared),
           kernel, a);
  });
}

}  // namespace

template <class T>
void launch_key_gradients(const AttentionArguments& a, int64_t samples,
                          const LaunchContext& context) {
  if (a.head_size <= 64) return launch_tiles<T, 64, 2, 64>(a, samples, context);
  launch_tiles<T, 128, 1, 32>(a, samples, context);
}
template void launch_key_gradients<bf16>(const AttentionArguments&, int64_t, const LaunchContext&);
template void launch_key_gradients<f16>(const AttentionArguments&, int64_t, const LaunchContext&);

}  // namespace dstrain::DSTRAIN_BACKEND
