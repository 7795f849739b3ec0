// The forward pass of attention on tensor cores. A block computes 64 kRowTiles queries of one head and loops over
// the keys they see, kColumns at a time; a warp computes 16 rows of every row tile. While one block product
// runs, the operand of the next one is copied (keys, then values).
//
// Lower bounds, per head of T queries: 2 D T^2 FLOPs on tensor cores (the causal half of 4 D T^2), T^2/2
// exponentials, and 8 T D + 4 T bytes of memory (q, k, v read once, y and lse written once). Blocks of one head run
// at the same time, so after the first block its keys and values come from the L2 cache.
#include "kernels/cuda/attention/kernels.cuh"
#include "kernels/cuda/attention/rows.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

// The running softmax of rows g (half 0) and g + 8 (half 1) of 16 rows. Exponents have base 2; `total` is this
// lane's part of the sum.
struct RunningSoftmax {
  float max[2] = {-INFINITY, -INFINITY};
  float total[2] = {0, 0};

  // Replaces scores by weights relative to the new maximum, and rescales the sums to it.
  template <int kTiles, int kSumTiles>
  __device__ __forceinline__ void step(float (&scores)[kTiles][4], float (&sums)[kSumTiles][4],
                                       float scale) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float largest = -INFINITY;
#pragma unroll
      for (int n = 0; n < kTiles; ++n)
        largest = fmaxf(largest, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
      const float new_max = fmaxf(max[half], quad_max(largest) * scale);
      const float correction = exp2_of(max[half] - new_max);
      max[half] = new_max;
      float sum = 0;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          scores[n][i] = exp2_of(fmaf(scores[n][i], scale, -new_max));
          sum += scores[n][i];
        }
      }
      total[half] = total[half] * correction + sum;
#pragma unroll
      for (int n = 0; n < kSumTiles; ++n) {
        sums[n][2 * half] *= correction;
        sums[n][2 * half + 1] *= correction;
      }
    }
  }
};

template <class T, int kWidth, int kRowTiles, int kColumns>
__global__ void __launch_bounds__(kThreads) forward_kernel(AttentionArguments a) {
  constexpr int kRows = kRowTiles * kRowStep;
  T* const query_tile = dynamic_shared<T>();
  T* const key_tile = query_tile + kRows * kWidth;
  T* const value_tile = key_tile + kColumns * kWidth;

  const HeadOfBlock head(a);
  const T* const qkv = static_cast<const T*>(a.qkv);
  const HeadRows<const T> keys = head.part(qkv, 1), values = head.part(qkv, 2);
  const DropoutSource dropout = head.dropout();
  const Lane lane;
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * kWarpRows;
  // The last rows see the most keys, so they start first.
  const int64_t first_row = static_cast<int64_t>(gridDim.x - 1 - blockIdx.x) * kRows;
  const int64_t end = first_row + kRows < a.seq ? first_row + kRows : a.seq;

  RunningSoftmax softmax[kRowTiles];
  float sums[kRowTiles][kWidth / 8][4] = {};

  load_tile<kRows, kWidth>(query_tile, head.part(qkv, 0), first_row);
  load_tile<kColumns, kWidth>(key_tile, keys, 0);
  for (int64_t column = 0; column < end; column += kColumns) {
    wait_copies();
    __syncthreads();
    load_tile<kColumns, kWidth>(value_tile, values, column);

    uint32_t active = 0;  // row tiles of this warp that see any of these keys
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
      active |= (column <= first_row + r * kRowStep + warp_row ? 1u : 0u) << r;
    float scores[kRowTiles][kColumns / 8][4] = {};
    add_scores<kRowTiles, kColumns, kWidth>(scores, query_tile, warp_row, key_tile, active);

    uint32_t weights[kRowTiles][kColumns / 16][4];
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      if ((active >> r & 1u) == 0) continue;
      const int64_t row = first_row + r * kRowStep + warp_row;
      if (column + kColumns > row) hide_future_keys(scores[r], row, column, lane);
      softmax[r].step(scores[r], sums[r], a.exponent_scale);
      if (dropout.threshold != 0) {
        clear_dropped(scores[r], KeptKeys<kColumns>(dropout, row, column, lane), lane);
      }
      pack_weights<T>(weights[r], scores[r]);
    }

    wait_copies();
    __syncthreads();
    if (column + kColumns < end) load_tile<kColumns, kWidth>(key_tile, keys, column + kColumns);
    add_product<kRowTiles, kColumns, kWidth>(sums, weights, value_tile, active);
  }

#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
    const int64_t row = first_row + r * kRowStep + warp_row;
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float total = quad_sum(softmax[r].total[half]);
      const int64_t at = row + lane.g + half * 8;
      factor[half] = a.drop_scale / total;
      if (lane.q == 0 && at < a.seq)
        a.lse[head.statistics() + at] = (softmax[r].max[half] + log2f(total)) * kLn2;
    }
    store_fragments<kWidth>(sums[r], factor[0], factor[1], query_tile, r * kRowStep + warp_row,
                            head.rows(static_cast<T*>(a.y)), row);
  }
}

template <class T, int kWidth, int kRowTiles, int kColumns>
void launch_tiles(const AttentionArguments& a, int64_t samples, const LaunchContext& context) {
  constexpr int kRows = kRowTiles * kRowStep;
  constexpr size_t kShared = sizeof(T) * kWidth * (kRows + 2 * kColumns);
  const auto kernel = forward_kernel<T, kWidth, kRowTiles, kColumns>;
  allow_shared("attention", kernel, kShared);
  launch(context.stream, "attention", grid_of<kRows>(a, samples, kShared), kernel, a);
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
