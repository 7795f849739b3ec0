// d_q of attention on wgmma: blocks, rows and copies as in forward.cu of this folder, formulas as in
// attention/query_gradient.cu.
//
// Lower bounds are those of attention/query_gradient.cu.
#include "kernels/cuda/attention/hopper/blocks.cuh"
#include "kernels/cuda/attention/hopper/gradients.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

template <class T, int kWidth, int kGroups, int kStages>
struct QueryGradientMemory {
  static constexpr int kTile = kPanelRows * kWidth;
  T queries[kGroups][kTile], d_y[kGroups][kTile];
  T keys[kStages][kTile], values[kStages][kTile];
  Ring<kStages> ring;
};

// kGeneral: with a window or documents.
// SASS <*, 64, 2, *>: threads 256, blocks 2, shared 98368
// SASS <*, 64, 3, *>: threads 384, blocks 1, shared 114752
// SASS <*, 128, *>: threads 256, blocks 1, shared 196672
template <class T, int kWidth, int kGroups, int kStages, bool kDropout, bool kGeneral>
__global__ void __launch_bounds__(kGroups* kGroupThreads, kWidth == 64 && kGroups == 2 ? 2 : 1)
    hopper_query_gradient_kernel(const __grid_constant__ AttentionArguments a,
                                 const __grid_constant__ TensorMaps maps, const BlockOrder order) {
  using Memory = QueryGradientMemory<T, kWidth, kGroups, kStages>;
  constexpr int kPanels = kWidth / 64;
  Memory& memory = *reinterpret_cast<Memory*>(panel_memory());
  Ring<kStages>& ring = memory.ring;

  const BlockRows rows = order.rows<kGroups, true>(static_cast<int>(blockIdx.x));
  const Head head = head_of(a, rows);
  const int group = warpgroup(), own_tile = rows.first_tile + group;
  // As in forward.cu.
  const int begin = kGeneral ? first_key_tile(head, rows.first_tile) : 0;
  const int own_begin = kGeneral ? first_key_tile(head, own_tile) : 0;
  const int tiles = rows.first_tile + rows.groups - begin;
  const auto fill = [&](int tile) {
    const int stage = ring.stage(tile);
    Barrier& filled = ring.filled[stage];
    // The queries and their d_y come with the first keys.
    const int of_queries = tile == 0 ? rows.groups : 0;
    filled.arrive_expecting((2 + 2 * of_queries) * kPanels * kPanelBytes);
#pragma unroll 1
    for (int g = 0; g < of_queries; ++g) {
      const int row = (rows.first_tile + g) * kPanelRows;
      copy_panels<kPanels>(memory.queries[g], maps.q, row, rows.head, rows.sample, filled);
      copy_panels<kPanels>(memory.d_y[g], maps.d_y, row, rows.head, rows.sample, filled);
    }
    const int key = (begin + tile) * kPanelRows;
    const auto kv_head = static_cast<int>(head.kv_head);
    copy_panels<kPanels>(memory.keys[stage], maps.k, key, kv_head, rows.sample, filled);
    copy_panels<kPanels>(memory.values[stage], maps.v, key, kv_head, rows.sample, filled);
  };
  if (threadIdx.x == 0) {
    ring.init(rows.groups * kWarps);
    publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x == 0) ring.start(tiles, fill);
  __syncwarp();
  if (group >= rows.groups) return;

  const DropoutSource dropout = kDropout ? head.dropout() : DropoutSource();
  const Lane lane;
  const int warp = static_cast<int>(threadIdx.x) % kGroupThreads / 32;
  const int row = own_tile * kPanelRows + warp * kWarpRows;  // the warp's first
  float shift[2], delta[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int at = row + lane.g + half * 8;
    // Queries past the end get weights of 2^-infinity = 0.
    shift[half] = at < a.seq ? a.lse[head.statistics() + at] * kLog2e : INFINITY;
    delta[half] = at < a.seq ? a.delta[head.statistics() + at] : 0;
  }
  float sums[kWidth / 8][4] = {};
  int first_keys[1][2];  // that the lane's rows see, beside the causal mask
  if constexpr (kGeneral) find_first_keys<1>(first_keys, head, row, lane);
  if constexpr (kGeneral) ring.skip(0, own_begin - begin);

#pragma unroll 1
  for (int tile = own_begin - begin; tile < own_tile + 1 - begin; ++tile) {
    if (group == 0) ring.advance(tile, tiles, fill);
    const int stage = ring.stage(tile), column = (begin + tile) * kPanelRows;
    const auto kept = kept_of<KeptKeys<kPanelRows>, kDropout>(dropout, row, column, lane);
    float weights[8][4], d_weights[8][4];
    ring.wait_filled(tile);
    issue_scores<kPanels>(weights, memory.queries[group], memory.keys[stage]);
    issue_scores<kPanels>(d_weights, memory.d_y[group], memory.values[stage]);
    wait_products<1>();
    finished(weights);
    if (begin + tile == own_tile) hide_future_keys(weights, row, column, lane);
    if constexpr (kGeneral) hide_keys_before(weights, first_keys[0], column, lane);
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        weights[n][i] = exp2_of(fmaf(weights[n][i], a.exponent_scale, -shift[i / 2]));
    wait_products<0>();
    finished(d_weights);
    if constexpr (kDropout) clear_dropped(d_weights, kept, lane);
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        d_weights[n][i] = weights[n][i] * (d_weights[n][i] - delta[i / 2]);
    uint32_t d_scores[4][4];
    pack_weights<T>(d_scores, d_weights);
    issue_product<kPanels>(sums, d_scores, memory.keys[stage]);
    wait_products<0>();
    finished(sums);
    ring.mark_read(tile);
  }

  const float factor = a.drop_scale * a.score_scale;
  store_group<kWidth>(sums, factor, factor, memory.queries[group], group,
                      head.of_queries(static_cast<T*>(a.d_q)), own_tile * kPanelRows);
}

template <class T, int kWidth, int kGroups, int kStages, bool kDropout, bool kGeneral>
void launch_blocks(const AttentionArguments& a, int64_t samples, const TensorMaps& maps,
                   const LaunchContext& context) {
  const auto kernel = hopper_query_gradient_kernel<T, kWidth, kGroups, kStages, kDropout, kGeneral>;
  constexpr size_t kShared = sizeof(QueryGradientMemory<T, kWidth, kGroups, kStages>);
  allow_shared("attention d_q", kernel, kShared);
  const BlockOrder order = order_of<kGroups>(a, samples, a.heads);
  launch(context.stream, "attention d_q", grid_of<kGroups>(order, kShared), kernel, a, maps, order);
}

}  // namespace

template <class T>
void launch_hopper_query_gradient(const AttentionArguments& a, int64_t samples,
                                  const TensorMaps& maps, const LaunchContext& context) {
  const bool dropout = a.drop_threshold != 0;
  with_flags(has_first_keys(a), dropout, [&](auto general, auto drops) {
    if (a.head_size == 128)
      launch_blocks<T, 128, 2, 4, drops, general>(a, samples, maps, context);
    else  // masks take registers
      launch_blocks<T, 64, drops || general ? 3 : 2, 4, drops, general>(a, samples, maps, context);
  });
}
template void launch_hopper_query_gradient<bf16>(const AttentionArguments&, int64_t,
                                                 const TensorMaps&, const LaunchContext&);
template void launch_hopper_query_gradient<f16>(const AttentionArguments&, int64_t,
                                                const TensorMaps&, const LaunchContext&);

}  // namespace dstrain::DSTRAIN_BACKEND
