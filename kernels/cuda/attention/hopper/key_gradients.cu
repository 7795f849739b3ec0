// d_k and d_v of attention on wgmma: a warpgroup has 64 keys of one head and loops over the queries that see them, 64 at a
// time; the warpgroups of a block share the copied queries, d_y and statistics. Formulas as in attention/query_gradient.cu.
// A warpgroup's sums and scores take three quarters of its registers, so one block has a multiprocessor.
//
// Lower bounds are those of attention/key_gradients.cu.
#include "kernels/cuda/attention/hopper/blocks.cuh"
#include "kernels/cuda/attention/hopper/gradients.cuh"
#include "kernels/cuda/attention/hopper/hopper.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

template <int kWidth, int kGroups, int kStages>
struct KeyGradientsMemory {
  static constexpr int kTile = kPanelRows * kWidth;
  bf16 keys[kGroups][kTile], values[kGroups][kTile];
  bf16 queries[kStages][kTile], d_y[kStages][kTile];
  float lse[kStages][kPanelRows], delta[kStages][kPanelRows];
  Ring<kStages> ring;
};

// SASS <64, 3, *>: threads 384, blocks 1, shared 116800
// SASS <64, 2, *>: threads 256, blocks 1, shared 100416
// SASS <128, *>: threads 256, blocks 1, shared 198720
template <int kWidth, int kGroups, int kStages, bool kDropout>
__global__ void __launch_bounds__(kGroups* kGroupThreads, 1)
    hopper_key_gradients_kernel(const __grid_constant__ AttentionArguments a,
                                const __grid_constant__ TensorMaps maps, const BlockOrder order) {
  using Memory = KeyGradientsMemory<kWidth, kGroups, kStages>;
  constexpr int kPanels = kWidth / 64;
  static_assert(kStages >= kGroups);  // the tiles that a group skips are in stages of their own
  Memory& memory = *reinterpret_cast<Memory*>(panel_memory());
  Ring<kStages>& ring = memory.ring;

  const BlockRows rows = order.rows<kGroups, false>(static_cast<int>(blockIdx.x));
  const Head head = head_of(a, rows);
  const int group = warpgroup(), own_tile = rows.first_tile + group;
  const auto seq = static_cast<int>(a.seq);
  const int tiles = order.row_tiles - rows.first_tile;  // of queries, from first_tile on
  const auto fill = [&](int tile) {
    const int stage = ring.stage(tile), row = (rows.first_tile + tile) * kPanelRows;
    Barrier& filled = ring.filled[stage];
    // The keys and values come with the first queries.
    const int of_keys = tile == 0 ? rows.groups : 0;
    filled.arrive_expecting((2 + 2 * of_keys) * kPanels * kPanelBytes +
                            2 * kPanelRows * sizeof(float));
#pragma unroll 1
    for (int g = 0; g < of_keys; ++g) {
      const int key = (rows.first_tile + g) * kPanelRows;
      copy_panels<kPanels>(memory.keys[g], maps.k, key, rows.head, rows.sample, filled);
      copy_panels<kPanels>(memory.values[g], maps.v, key, rows.head, rows.sample, filled);
    }
    copy_panels<kPanels>(memory.queries[stage], maps.q, row, rows.head, rows.sample, filled);
    copy_panels<kPanels>(memory.d_y[stage], maps.d_y, row, rows.head, rows.sample, filled);
    const auto first = static_cast<int>(head.statistics()) + row;
    copy_floats(memory.lse[stage], maps.lse, first, filled);
    copy_floats(memory.delta[stage], maps.delta, first, filled);
  };
  if (threadIdx.x == 0) {
    ring.init(rows.groups * kWarps);
    publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x == 0) ring.start(tiles, fill);
  __syncwarp();
  if (group >= rows.groups) return;
  // The keys are there when the first tile is. Before that none is marked as read: its stage could be filled again.
  ring.wait_filled(0);
  for (int tile = 0; tile < group; ++tile) ring.mark_read(tile);  // whose queries see no key

  const DropoutSource dropout = kDropout ? head.dropout() : DropoutSource();
  const Lane lane;
  const int warp = static_cast<int>(threadIdx.x) % kGroupThreads / 32;
  const int row = own_tile * kPanelRows + warp * kWarpRows;  // the warp's first
  float d_keys[kWidth / 8][4] = {}, d_values[kWidth / 8][4] = {};

#pragma unroll 1
  for (int tile = group; tile < tiles; ++tile) {
    if (group == 0) ring.advance(tile, tiles, fill);
    const int stage = ring.stage(tile), column = (rows.first_tile + tile) * kPanelRows;
    const float* const lse = memory.lse[stage];
    const float* const delta = memory.delta[stage];
    const auto kept = kept_of<KeptQueries<kPanelRows>, kDropout>(dropout, row, column, lane);
    float weights[8][4], d_weights[8][4];
    ring.wait_filled(tile);
    issue_scores<kPanels>(weights, memory.keys[group], memory.queries[stage]);
    issue_scores<kPanels>(d_weights, memory.values[group], memory.d_y[stage]);
    wait_products<1>();
    finished(weights);
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        weights[n][i] =
            exp2_of(fmaf(weights[n][i], a.exponent_scale, -lse[lane.column(n, i)] * kLog2e));
    // The copy of the last statistics goes past the head, so weights are replaced, whatever they are.
    const bool past_end = column + kPanelRows > seq;
    if (tile == group || past_end) {
#pragma unroll
      for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int query = column + lane.column(n, i);
          if (query < row + lane.row(i) || query >= seq) weights[n][i] = 0;
        }
    }
    wait_products<0>();
    finished(d_weights);
    // Packed 16 queries at a time, so that registers become free on the way.
    uint32_t rounded[4][4], d_scores[4][4];
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      float of_step[2][4], d_of_step[2][4];
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int at = 2 * step + n;
          float weight = weights[at][i], d_weight = d_weights[at][i];
          bool keep = true;
          if constexpr (kDropout) keep = kept.kept(at, i, lane);
          d_of_step[n][i] = weight * ((keep ? d_weight : 0) - delta[lane.column(at, i)]);
          of_step[n][i] = keep ? weight : 0;
        }
      if (past_end) {
#pragma unroll
        for (int n = 0; n < 2; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i)
            if (column + lane.column(2 * step + n, i) >= seq) d_of_step[n][i] = 0;
      }
      pack_step<bf16>(rounded[step], of_step[0], of_step[1]);
      pack_step<bf16>(d_scores[step], d_of_step[0], d_of_step[1]);
    }
    issue_product<kPanels>(d_values, rounded, memory.d_y[stage]);
    issue_product<kPanels>(d_keys, d_scores, memory.queries[stage]);
    wait_products<0>();
    finished(d_values);
    finished(d_keys);
    ring.mark_read(tile);
  }

  const float factor = a.drop_scale * a.score_scale;
  store_group<kWidth>(d_keys, factor, factor, memory.keys[group], group,
                      head.of_keys(static_cast<bf16*>(a.d_k)), own_tile * kPanelRows);
  store_group<kWidth>(d_values, a.drop_scale, a.drop_scale, memory.values[group], group,
                      head.of_keys(static_cast<bf16*>(a.d_v)), own_tile * kPanelRows);
}

template <int kWidth, int kGroups, int kStages, bool kDropout>
void launch_blocks(const AttentionArguments& a, int64_t samples, const TensorMaps& maps,
                   const LaunchContext& context) {
  const auto kernel = hopper_key_gradients_kernel<kWidth, kGroups, kStages, kDropout>;
  constexpr size_t kShared = sizeof(KeyGradientsMemory<kWidth, kGroups, kStages>);
  allow_shared("attention d_k, d_v", kernel, kShared);
  const BlockOrder order = order_of<kGroups>(a, samples);
  launch(context.stream, "attention d_k, d_v", grid_of<kGroups>(order, kShared), kernel, a, maps,
         order);
}

}  // namespace

void launch_hopper_key_gradients(const AttentionArguments& a, int64_t samples,
                                 const TensorMaps& maps, const LaunchContext& context) {
  const bool dropout = a.drop_threshold != 0;
  if (a.head_size == 64 && !dropout)
    launch_blocks<64, 3, 4, false>(a, samples, maps, context);
  else if (a.head_size == 64)  // masks take registers
    launch_blocks<64, 2, 4, true>(a, samples, maps, context);
  else if (!dropout)
    launch_blocks<128, 2, 4, false>(a, samples, maps, context);
  else
    launch_blocks<128, 2, 4, true>(a, samples, maps, context);
}

bool launch_hopper_gradients(const AttentionArguments& a, int64_t samples,
                             const LaunchContext& context) {
  if (a.group > 1 || !hopper_takes(a, samples, context)) return false;
  // Statistics are copied from the rows of a tile on, at multiples of 16 bytes.
  const auto aligned = [](const float* at) { return reinterpret_cast<uintptr_t>(at) % 16 == 0; };
  if (a.seq % 4 != 0 || !aligned(a.lse) || !aligned(a.delta)) return false;
  const TensorMaps maps = gradient_maps(a, samples);
  launch_hopper_query_gradient(a, samples, maps, context);
  launch_hopper_key_gradients(a, samples, maps, context);
  return true;
}

}  // namespace dstrain::DSTRAIN_BACKEND
