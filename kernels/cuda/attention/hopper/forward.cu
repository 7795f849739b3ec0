// The forward pass of attention on wgmma. A warpgroup has 64 queries of one head and loops over the keys that they see, 64 at
// a time; the warpgroups of a block share the copied keys and values. Three or four warpgroups share a multiprocessor, so that
// the softmax of some runs beside the products of others.
//
// Lower bounds are those of attention/forward.cu; at D=64 exponentials (16 a clock and multiprocessor) take as long as the
// products (4096 FLOPs a clock).
#include "kernels/cuda/attention/hopper/blocks.cuh"
#include "kernels/cuda/attention/hopper/hopper.cuh"
#include "kernels/cuda/attention/softmax.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

template <int kWidth, int kGroups, int kStages>
struct ForwardMemory {
  static constexpr int kTile = kPanelRows * kWidth;
  bf16 queries[kGroups][kTile];
  bf16 keys[kStages][kTile], values[kStages][kTile];
  Ring<kStages> ring;
};

// SASS <64, *>: threads 256, blocks 2, shared 81984
// SASS <128, 2, *>: threads 256, blocks 2, shared 98336
// SASS <128, 3, *>: threads 384, blocks 1, shared 180288
template <int kWidth, int kGroups, int kStages, bool kDropout>
__global__ void __launch_bounds__(kGroups* kGroupThreads, kGroups == 2 ? 2 : 1)
    hopper_forward_kernel(const __grid_constant__ AttentionArguments a,
                          const __grid_constant__ TensorMaps maps, const BlockOrder order) {
  using Memory = ForwardMemory<kWidth, kGroups, kStages>;
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
    // The queries come with the first keys.
    const int of_queries = tile == 0 ? rows.groups : 0;
    filled.arrive_expecting((2 + of_queries) * kPanels * kPanelBytes);
#pragma unroll 1
    for (int g = 0; g < of_queries; ++g)
      copy_panels<kPanels>(memory.queries[g], maps.q, (rows.first_tile + g) * kPanelRows, rows.head,
                           rows.sample, filled);
    const auto kv_head = static_cast<int>(head.kv_head);
    copy_panels<kPanels>(memory.keys[stage], maps.k, tile * kPanelRows, kv_head, rows.sample,
                         filled);
    copy_panels<kPanels>(memory.values[stage], maps.v, tile * kPanelRows, kv_head, rows.sample,
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
  RunningSoftmax softmax;
  float sums[kWidth / 8][4] = {};

#pragma unroll 1
  for (int tile = 0; tile <= own_tile; ++tile) {
    if (group == 0) ring.advance(tile, tiles, fill);
    const int stage = ring.stage(tile), column = tile * kPanelRows;
    const auto kept = kept_of<KeptKeys<kPanelRows>, kDropout>(dropout, row, column, lane);
    float scores[8][4];
    ring.wait_filled(tile);
    issue_scores<kPanels>(scores, memory.queries[group], memory.keys[stage]);
    wait_products<0>();
    finished(scores);
    if (tile == own_tile) hide_future_keys(scores, row, column, lane);
    softmax.step<false>(scores, sums, a.exponent_scale);
    if constexpr (kDropout) clear_dropped(scores, kept, lane);
    uint32_t weights[4][4];
    pack_weights<bf16>(weights, scores);
    issue_product<kPanels>(sums, weights, memory.values[stage]);
    wait_products<0>();
    finished(sums);
    ring.mark_read(tile);
  }

  float factor[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float total = quad_sum(softmax.total[half]);
    const int at = row + lane.g + half * 8;
    factor[half] = a.drop_scale / total;
    if (lane.q == 0 && at < a.seq)
      a.lse[head.statistics() + at] = (softmax.max[half] + log2f(total)) * kLn2;
  }
  store_group<kWidth>(sums, factor[0], factor[1], memory.queries[group], group,
                      head.rows(static_cast<bf16*>(a.y)), own_tile * kPanelRows);
}

template <int kWidth, int kGroups, int kStages, bool kDropout>
void launch_blocks(const AttentionArguments& a, int64_t samples, const LaunchContext& context) {
  const auto kernel = hopper_forward_kernel<kWidth, kGroups, kStages, kDropout>;
  constexpr size_t kShared = sizeof(ForwardMemory<kWidth, kGroups, kStages>);
  allow_shared("attention", kernel, kShared);
  const BlockOrder order = order_of<kGroups>(a, samples);
  launch(context.stream, "attention", grid_of<kGroups>(order, kShared), kernel, a,
         forward_maps(a, samples), order);
}

}  // namespace

bool launch_hopper_forward(const AttentionArguments& a, int64_t samples,
                           const LaunchContext& context) {
  if (!hopper_takes(a, samples, context)) return false;
  const bool dropout = a.drop_threshold != 0;
  if (a.head_size == 64 && !dropout)
    launch_blocks<64, 2, 4, false>(a, samples, context);
  else if (a.head_size == 64)
    launch_blocks<64, 2, 4, true>(a, samples, context);
  else if (!dropout)
    launch_blocks<128, 2, 2, false>(a, samples, context);
  else  // masks take registers
    launch_blocks<128, 3, 4, true>(a, samples, context);
  return true;
}

}  // namespace dstrain::DSTRAIN_BACKEND
