// d_k and d_v of attention on wgmma: a warpgroup has 64 keys of one head and loops over the queries that see them, 64 at a
// time; the warpgroups of a block share the copied queries, d_y and statistics. The heads of queries that a head of keys serves
// follow each other in the ring, and add to the same sums. Formulas as in attention/query_gradient.cu.
// A warpgroup's sums and scores take three quarters of its registers, so one block has a multiprocessor.
//
// Lower bounds are those of attention/key_gradients.cu.
#include "kernels/cuda/attention/hopper/blocks.cuh"
#include "kernels/cuda/attention/hopper/gradients.cuh"
#include "kernels/cuda/attention/hopper/hopper.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

template <class T, int kWidth, int kGroups, int kStages>
struct KeyGradientsMemory {
  static constexpr int kTile = kPanelRows * kWidth;
  T keys[kGroups][kTile], values[kGroups][kTile];
  T queries[kStages][kTile], d_y[kStages][kTile];
  float lse[kStages][kStatisticsStep], delta[kStages][kStatisticsStep];
  Ring<kStages> ring;
};

// kGeneral: with a window, documents, several heads of queries, or T that is no multiple of 4.
// SASS <*, 64, 3, *>: threads 384, blocks 1, shared 117888
// SASS <*, 64, 2, *>: threads 256, blocks 1, shared 101504
// SASS <*, 128, *>: threads 256, blocks 1, shared 199808
template <class T, int kWidth, int kGroups, int kStages, bool kDropout, bool kGeneral>
__global__ void __launch_bounds__(kGroups* kGroupThreads, 1)
    hopper_key_gradients_kernel(const __grid_constant__ AttentionArguments a,
                                const __grid_constant__ TensorMaps maps, const BlockOrder order) {
  using Memory = KeyGradientsMemory<T, kWidth, kGroups, kStages>;
  constexpr int kPanels = kWidth / 64;
  Memory& memory = *reinterpret_cast<Memory*>(panel_memory());
  Ring<kStages>& ring = memory.ring;

  const BlockRows rows = order.rows<kGroups, false>(static_cast<int>(blockIdx.x));
  // The member'th head of queries that the block's head of keys serves.
  const auto head_of_member = [&](int member) -> Head {
    return {a, rows.head * a.group + member, rows.head, rows.sample};
  };
  const Head first_head = head_of_member(0);
  const int group = warpgroup(), own_tile = rows.first_tile + group;
  const auto seq = static_cast<int>(a.seq);
  // The tiles of a head's queries, from first_tile on, that see keys of the block, and the end of those that see the group's.
  const int tiles =
      kGeneral ? end_query_tile(first_head, rows.first_tile + rows.groups - 1) - rows.first_tile
               : order.row_tiles - rows.first_tile;
  const int own_end =
      kGeneral ? end_query_tile(first_head, min(own_tile, order.row_tiles - 1)) - rows.first_tile
               : tiles;
  const int members = kGeneral ? a.group : 1;
  // step: tiles of one head of queries after the other.
  const auto fill = [&](int step) {
    const int member = kGeneral ? step / tiles : 0;
    const int stage = ring.stage(step),
              row = (rows.first_tile + step - member * tiles) * kPanelRows;
    const Head head = head_of_member(member);
    Barrier& filled = ring.filled[stage];
    // The keys and values come with the first queries.
    const int of_keys = step == 0 ? rows.groups : 0;
    filled.arrive_expecting((2 + 2 * of_keys) * kPanels * kPanelBytes +
                            2 * kStatisticsBox * sizeof(float));
#pragma unroll 1
    for (int g = 0; g < of_keys; ++g) {
      const int key = (rows.first_tile + g) * kPanelRows;
      copy_panels<kPanels>(memory.keys[g], maps.k, key, rows.head, rows.sample, filled);
      copy_panels<kPanels>(memory.values[g], maps.v, key, rows.head, rows.sample, filled);
    }
    const auto query_head = static_cast<int>(head.head);
    copy_panels<kPanels>(memory.queries[stage], maps.q, row, query_head, rows.sample, filled);
    copy_panels<kPanels>(memory.d_y[stage], maps.d_y, row, query_head, rows.sample, filled);
    const int first = static_cast<int>(head.statistics()) / 4 * 4 + row;
    copy_floats(memory.lse[stage], maps.lse, first, filled);
    copy_floats(memory.delta[stage], maps.delta, first, filled);
  };
  if (threadIdx.x == 0) {
    ring.init(rows.groups * kWarps);
    publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x == 0) ring.start(tiles * members, fill);
  __syncwarp();
  if (group >= rows.groups) return;

  const Lane lane;
  const int warp = static_cast<int>(threadIdx.x) % kGroupThreads / 32;
  const int row = own_tile * kPanelRows + warp * kWarpRows;  // the warp's first
  float d_keys[kWidth / 8][4] = {}, d_values[kWidth / 8][4] = {};
  // The ends of the queries that see the lane's keys, and of those that see all of the warp's.
  int end_queries[2], end_of_all = 0;
  if constexpr (kGeneral) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      end_queries[half] = first_head.end_query(min(row + lane.g + half * 8, seq - 1));
    end_of_all = first_head.end_query(min(row, seq - 1));
  }

  int member = 0, tile = 0;
  DropoutSource dropout = kDropout ? first_head.dropout() : DropoutSource();
#pragma unroll 1
  for (int step = 0; step < tiles * members; ++step, ++tile) {
    if (group == 0) ring.advance(step, tiles * members, fill);
    if (kGeneral && tile == tiles) {
      tile = 0;
      ++member;
      if constexpr (kDropout)
        dropout.head = static_cast<uint64_t>(a.first_head + first_head.head + member);
    }
    if (tile < group || (kGeneral && tile >= own_end)) {  // queries that see no key of the group
      ring.skip(step, step + 1);
      continue;
    }
    const int stage = ring.stage(step), column = (rows.first_tile + tile) * kPanelRows;
    const int shift = kGeneral ? static_cast<int>(head_of_member(member).statistics()) % 4 : 0;
    const float* const lse = memory.lse[stage] + shift;
    const float* const delta = memory.delta[stage] + shift;
    const auto kept = kept_of<KeptQueries<kPanelRows>, kDropout>(dropout, row, column, lane);
    float weights[8][4], d_weights[8][4];
    ring.wait_filled(step);
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
    if (tile == group || past_end || (kGeneral && column + kPanelRows > end_of_all)) {
#pragma unroll
      for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int query = column + lane.column(n, i);
          const int end = kGeneral ? end_queries[i / 2] : seq;
          if (query < row + lane.row(i) || query >= end) weights[n][i] = 0;
        }
    }
    wait_products<0>();
    finished(d_weights);
    // Packed 16 queries at a time, so that registers become free on the way.
    uint32_t rounded[4][4], d_scores[4][4];
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      float of_step[2][4], d_of_step[2][4];
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int at = 2 * part + n;
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
            if (column + lane.column(2 * part + n, i) >= seq) d_of_step[n][i] = 0;
      }
      pack_step<T>(rounded[part], of_step[0], of_step[1]);
      pack_step<T>(d_scores[part], d_of_step[0], d_of_step[1]);
    }
    issue_product<kPanels>(d_values, rounded, memory.d_y[stage]);
    issue_product<kPanels>(d_keys, d_scores, memory.queries[stage]);
    wait_products<0>();
    finished(d_values);
    finished(d_keys);
    ring.mark_read(step);
  }

  const float factor = a.drop_scale * a.score_scale;
  store_group<kWidth>(d_keys, factor, factor, memory.keys[group], group,
                      first_head.of_keys(static_cast<T*>(a.d_k)), own_tile * kPanelRows);
  store_group<kWidth>(d_values, a.drop_scale, a.drop_scale, memory.values[group], group,
                      first_head.of_keys(static_cast<T*>(a.d_v)), own_tile * kPanelRows);
}

template <class T, int kWidth, int kGroups, int kStages, bool kDropout, bool kGeneral>
void launch_blocks(const AttentionArguments& a, int64_t samples, const TensorMaps& maps,
                   const LaunchContext& context) {
  const auto kernel = hopper_key_gradients_kernel<T, kWidth, kGroups, kStages, kDropout, kGeneral>;
  constexpr size_t kShared = sizeof(KeyGradientsMemory<T, kWidth, kGroups, kStages>);
  allow_shared("attention d_k, d_v", kernel, kShared);
  const BlockOrder order = order_of<kGroups>(a, samples, a.kv_heads);
  launch(context.stream, "attention d_k, d_v", grid_of<kGroups>(order, kShared), kernel, a, maps,
         order);
}

template <class T>
void launch_key_gradients_of(const AttentionArguments& a, int64_t samples, const TensorMaps& maps,
                             const LaunchContext& context) {
  const bool general = has_first_keys(a) || a.group > 1 || a.seq % 4 != 0;
  with_flags(general, a.drop_threshold != 0, [&](auto is_general, auto drops) {
    if (a.head_size == 128)
      launch_blocks<T, 128, 2, 4, drops, is_general>(a, samples, maps, context);
    else  // masks take registers
      launch_blocks<T, 64, drops || is_general ? 2 : 3, 4, drops, is_general>(a, samples, maps,
                                                                              context);
  });
}

}  // namespace

template <class T>
bool launch_hopper_gradients(const AttentionArguments& a, int64_t samples,
                             const LaunchContext& context) {
  if (!hopper_takes(a, samples, context)) return false;
  const auto aligned = [](const float* at) { return reinterpret_cast<uintptr_t>(at) % 16 == 0; };
  if (!aligned(a.lse) || !aligned(a.delta)) return false;
  const TensorMaps maps = gradient_maps<T>(a, samples);
  launch_hopper_query_gradient<T>(a, samples, maps, context);
  launch_key_gradients_of<T>(a, samples, maps, context);
  return true;
}
template bool launch_hopper_gradients<bf16>(const AttentionArguments&, int64_t,
                                            const LaunchContext&);
template bool launch_hopper_gradients<f16>(const AttentionArguments&, int64_t,
                                           const LaunchContext&);

}  // namespace dstrain::DSTRAIN_BACKEND
