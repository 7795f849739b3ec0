// d_k and d_v of attention on tensor cores. Rows are keys and columns are queries, so that the warp that owns a key
// holds both of its sums: d_v = c (M P)^T d_y, d_k = dS^T q / sqrt(D); query_gradient.cu explains the symbols.
// The queries of the next step are copied while this step computes.
//
// Lower bounds, per head of T keys: 4 D T^2 FLOPs (the causal half of four products) and 12 T D + 8 T bytes.
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
template <class T, int kWidth, int kRowTiles, int kColumns, bool kVector, bool kDropout>
__global__ void __launch_bounds__(kThreads, 2) key_gradients_kernel(AttentionArguments a) {
  constexpr int kRows = kRowTiles * kRowStep, kStage = 2 * kColumns * kWidth;
  T* const key_tile = dynamic_shared<T>();
  T* const value_tile = key_tile + kRows * kWidth;
  T* const stages =
      value_tile + kRows * kWidth;  // two stages of queries and d_y, then two of their statistics
  float* const statistics = reinterpret_cast<float*>(stages + 2 * kStage);

  const HeadOfBlock head{a};
  const T* const qkv = static_cast<const T*>(a.qkv);
  const HeadRows<const T> queries = head.part(qkv, 0),
                          d_y = head.rows(static_cast<const T*>(a.d_y));
  const DropoutSource dropout = kDropout ? head.dropout() : DropoutSource();
  const Lane lane;
  const int thread = static_cast<int>(threadIdx.x), warp_row = thread / 32 * kWarpRows;
  const int seq = static_cast<int>(a.seq),
            first_row = static_cast<int>(blockIdx.x) *
                        kRows;  // the first keys are seen by the most queries

  float d_keys[kRowTiles][kWidth / 8][4] = {}, d_values[kRowTiles][kWidth / 8][4] = {};

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
  load_tile<kRows, kWidth, kVector, 1>(key_tile, head.part(qkv, 1), first_row);
  load_tile<kRows, kWidth, kVector, 1>(value_tile, head.part(qkv, 2), first_row);
  load_stage(0, first_row);
  int now = 0;
  // Adds kColumns queries from `column` on. kOffset: column - first_row, or kBefore if they see all keys of the block.
  // Warps whose keys are seen by none of the queries compute zeros: they would wait for the others.
  const auto add_queries = [&](int column, auto offset) {
    constexpr int kOffset = decltype(offset)::value;
    // Queries whose fragments fit in registers beside the sums.
    constexpr int kPart = kRowTiles == 1 ? 32 : 16;
    // Row tiles from kEnd on are seen by none of the queries.
    constexpr int kNear = (kOffset + kColumns + kRowStep - 1) / kRowStep;
    constexpr int kEnd = kOffset == kBefore || kNear > kRowTiles ? kRowTiles : kNear;
    wait_copies();
    __syncthreads();
    if (column + kColumns < seq) load_stage(now ^ 1, column + kColumns);
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
        if (kOffset < (r + 1) * kRowStep && kOffset != kBefore)
          hide_past_queries(weights[r], row, query, lane);
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
  on_diagonal<kRows, kColumns>([&](auto offset) {
    const int column = first_row + decltype(offset)::value;
    if (column < seq) add_queries(column, offset);
  });
#pragma unroll 1
  for (int column = first_row + kRows; column < seq; column += kColumns)
    add_queries(column, std::integral_constant<int, kBefore>());

  __syncthreads();
  const float factor = a.drop_scale * a.score_scale;
  T* const d_qkv = static_cast<T*>(a.d_qkv);
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
    const int row = r * kRowStep + warp_row;
    store_fragments<kWidth, kVector>(d_keys[r], factor, factor, key_tile, row, head.part(d_qkv, 1),
                                     first_row + row);
    store_fragments<kWidth, kVector>(d_values[r], a.drop_scale, a.drop_scale, value_tile, row,
                                     head.part(d_qkv, 2), first_row + row);
  }
}

template <class T, int kWidth, int kRowTiles, int kColumns>
void launch_tiles(const AttentionArguments& a, int64_t samples, const LaunchContext& context) {
  constexpr int kRows = kRowTiles * kRowStep;
  constexpr size_t kShared =
      sizeof(T) * kWidth * (2 * kRows + 4 * kColumns) + sizeof(float) * 4 * kColumns;
  with_variant(a, [&](auto vector, auto dropout) {
    const auto kernel = key_gradients_kernel<T, kWidth, kRowTiles, kColumns,
                                             decltype(vector)::value, decltype(dropout)::value>;
    allow_shared("attention d_k, d_v", kernel, kShared);
    launch(context.stream, "attention d_k, d_v", grid_of<kRows>(a, samples, kShared), kernel, a);
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
