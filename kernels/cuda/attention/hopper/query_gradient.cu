// d_q of attention on wgmma: blocks, rows and copies as in forward.cu of this folder, formulas as in
// attention/query_gradient.cu.
//
// Lower bounds are those of attention/query_gradient.cu.
#include "kernels/cuda/attention/hopper/blocks.cuh"
#include "kernels/cuda/attention/hopper/gradients.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

template <int kWidth, int kGroups, int kStages>
struct QueryGradientMemory {
  static constexpr int kTile = kPanelRows * kWidth;
  bf16 queries[kGroups][kTile], d_y[kGroups][kTile];
  bf16 keys[kStages][kTile], values[kStages][kTile];
  Ring<kStages> ring;
};

// SASS <64, 2, *>: threads 256, blocks 2, shared 98368
// SASS <64, 3, *>: threads 384, blocks 1, shared 114752
// SASS <128, *>: threads 256, blocks 1, shared 196672
template <int kWidth, int kGroups, int kStages, bool kDropout>
__global__ void __launch_bounds__(kGroups* kGroupThreads, kWidth == 64 && kGroups == 2 ? 2 : 1)
    hopper_query_gradient_kernel(const __grid_constant__ AttentionArguments a,
                                 const __grid_constant__ TensorMaps maps, const BlockOrder order) {
  using Memory = QueryGradientMemory<kWidth, kGroups, kStages>;
  constexpr int kPanels = kWidth / 64;
  Memory& memory = *reinterpret_cast<Memory*>(panel_memory());
  Ring<kStages>& ring = memory.ring;

  const BlockRows rows = order.rows<kGroups, true>(static_cast<int>(blockIdx.x));
  const Head head = head_of(a, rows);
  const int group = warpgroup(), own_tile = rows.first_tile + group;
  const int tiles = rows.first_tile + rows.groups;  // of keys
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
    copy_panels<kPanels>(memory.keys[stage], maps.k, tile * kPanelRows, rows.head, rows.sample,
                         filled);
    copy_panels<kPanels>(memory.values[stage], maps.v, tile * kPanelRows, rows.head, rows.sample,
                         filled);
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

#pragma unroll 1
  for (int tile = 0; tile <= own_tile; ++tile) {
    if (group == 0) ring.advance(tile, tiles, fill);
    const int stage = ring.stage(tile), column = tile * kPanelRows;
    const auto kept = kept_of<KeptKeys<kPanelRows>, kDropout>(dropout, row, column, lane);
    float weights[8][4], d_weights[8][4];
    ring.wait_filled(tile);
    issue_scores<kPanels>(weights, memory.queries[group], memory.keys[stage]);
    issue_scores<kPanels>(d_weights, memory.d_y[group], memory.values[stage]);
    wait_products<1>();
    finished(weights);
    if (tile == own_tile) hide_future_keys(weights, row, column, lane);
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
    pack_weights<bf16>(d_scores, d_weights);
    issue_product<kPanels>(sums, d_scores, memory.keys[stage]);
    wait_products<0>();
    finished(sums);
    ring.mark_read(tile);
  }

  const float factor = a.drop_scale * a.score_scale;
  store_group<kWidth>(sums, factor, factor, memory.queries[group], group,
                      head.of_queries(static_cast<bf16*>(a.d_q)), own_tile * kPanelRows);
}

template <int kWidth, int kGroups, int kStages, bool kDropout>
void launch_blocks(const AttentionArguments& a, int64_t samples, const TensorMaps& maps,
                   const LaunchContext& context) {
  const auto kernel = hopper_query_gradient_kernel<kWidth, kGroups, kStages, kDropout>;
  constexpr size_t kShared = sizeof(QueryGradientMemory<kWidth, kGroups, kStages>);
  allow_shared("attention d_q", kernel, kShared);
  const BlockOrder order = order_of<kGroups>(a, samples);
  launch(context.stream, "attention d_q", grid_of<kGroups>(order, kShared), kernel, a, maps, order);
}

}  // namespace

void launch_hopper_query_gradient(const AttentionArguments& a, int64_t samples,
                                  const TensorMaps& maps, const LaunchContext& context) {
  const bool dropout = a.drop_threshold != 0;
  if (a.head_size == 64 && !dropout)
    launch_blocks<64, 2, 4, false>(a, samples, maps, context);
  else if (a.head_size == 64)  // masks take registers
    launch_blocks<64, 3, 4, true>(a, samples, maps, context);
  else if (!dropout)
    launch_blocks<128, 2, 4, false>(a, samples, maps, context);
  else
    launch_blocks<128, 2, 4, true>(a, samples, maps, context);
}

}  // namespace dstrain::DSTRAIN_BACKEND
