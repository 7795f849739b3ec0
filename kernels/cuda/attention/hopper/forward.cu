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

template <class T, int kWidth, int kGroups, int kStages>
struct ForwardMemory {
  static constexpr int kTile = kPanelRows * kWidth;
  T queries[kGroups][kTile];
  T keys[kStages][kTile], values[kStages][kTile];
  Ring<kStages> ring;
};

// kGeneral: with a window or documents.
// SASS <*, 64, 2, *>: threads 256, blocks 2, shared 81984
// SASS <*, 64, 3, *>: threads 384, blocks 1, shared 90176
// SASS <*, 128, 2, *>: threads 256, blocks 2, shared 98336
// SASS <*, 128, 3, *>: threads 384, blocks 1, shared 180288
template <class T, int kWidth, int kGroups, int kStages, bool kDropout, bool kGeneral>
__global__ void __launch_bounds__(kGroups* kGroupThreads, kGroups == 2 ? 2 : 1)
    hopper_forward_kernel(const __grid_constant__ AttentionArguments a,
                          const __grid_constant__ TensorMaps maps, const BlockOrder order) {
  using Memory = ForwardMemory<T, kWidth, kGroups, kStages>;
  constexpr int kPanels = kWidth / 64;
  Memory& memory = *reinterpret_cast<Memory*>(panel_memory());
  Ring<kStages>& ring = memory.ring;

  const BlockRows rows = order.rows<kGroups, true>(static_cast<int>(blockIdx.x));
  const Head head = head_of(a, rows);
  const int group = warpgroup(), own_tile = rows.first_tile + group;
  // The first tiles of keys that the block's rows and the group's rows see, and the number of those that the block sees.
  const int begin = kGeneral ? first_key_tile(head, rows.first_tile) : 0;
  const int own_begin = kGeneral ? first_key_tile(head, own_tile) : 0;
  const int tiles = rows.first_tile + rows.groups - begin;
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
    const int key = (begin + tile) * kPanelRows;
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
  RunningSoftmax softmax;
  float sums[kWidth / 8][4] = {};
  int first_keys[1][2];  // that the lane's rows see, beside the causal mask
  if constexpr (kGeneral) find_first_keys<1>(first_keys, head, row, lane);
  // The first group skips none: it has the block's first rows.
  if constexpr (kGeneral) ring.skip(0, own_begin - begin);

#pragma unroll 1
  for (int tile = own_begin - begin; tile < own_tile + 1 - begin; ++tile) {
    if (group == 0) ring.advance(tile, tiles, fill);
    const int stage = ring.stage(tile), column = (begin + tile) * kPanelRows;
    const auto kept = kept_of<KeptKeys<kPanelRows>, kDropout>(dropout, row, column, lane);
    float scores[8][4];
    ring.wait_filled(tile);
    issue_scores<kPanels>(scores, memory.queries[group], memory.keys[stage]);
    wait_products<0>();
    finished(scores);
    if (begin + tile == own_tile) hide_future_keys(scores, row, column, lane);
    if constexpr (kGeneral) hide_keys_before(scores, first_keys[0], column, lane);
    softmax.step<kGeneral>(scores, sums, a.exponent_scale);
    if constexpr (kDropout) clear_dropped(scores, kept, lane);
    uint32_t weights[4][4];
    pack_weights<T>(weights, scores);
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
                      head.rows(static_cast<T*>(a.y)), own_tile * kPanelRows);
}

template <class T, int kWidth, int kGroups, int kStages, bool kDropout, bool kGeneral>
void launch_blocks(const AttentionArguments& a, int64_t samples, const LaunchContext& context) {
  const auto kernel = hopper_forward_kernel<T, kWidth, kGroups, kStages, kDropout, kGeneral>;
  constexpr size_t kShared = sizeof(ForwardMemory<T, kWidth, kGroups, kStages>);
  allow_shared("attention", kernel, kShared);
  const BlockOrder order = order_of<kGroups>(a, samples, a.heads);
  launch(context.stream, "attention", grid_of<kGroups>(order, kShared), kernel, a,
         forward_maps<T>(a, samples), order);
}

}  // namespace

template <class T>
bool launch_hopper_forward(const AttentionArguments& a, int64_t samples,
                           const LaunchContext& context) {
  if (!hopper_takes(a, samples, context)) return false;
  const bool dropout = a.drop_threshold != 0, wide = a.head_size == 128;
  // Masks take registers, and so does what is seen of a window or a document.
  if (has_first_keys(a)) {
    with_flags(wide, dropout, [&](auto is_wide, auto drops) {
      launch_blocks<T, is_wide ? 128 : 64, 3, 4, drops, true>(a, samples, context);
    });
  } else if (!wide) {
    with_flag(dropout,
              [&](auto drops) { launch_blocks<T, 64, 2, 4, drops, false>(a, samples, context); });
  } else if (!dropout) {
    launch_blocks<T, 128, 2, 2, false, false>(a, samples, context);
  } else {
    launch_blocks<T, 128, 3, 4, true, false>(a, samples, context);
  }
  return true;
}
template bool launch_hopper_forward<bf16>(const AttentionArguments&, int64_t, const LaunchContext&);
template bool launch_hopper_forward<f16>(const AttentionArguments&, int64_t, const LaunchContext&);

}  // namespace dstrain::DSTRAIN_BACKEND
