// Softmax cross-entropy and its gradient, one block for each row: the largest logit and the sum of
// exp(x - largest) in one pass, then d = (p - [i = target]) * d_loss, for which the row is read again from the L2
// cache. Minimum memory traffic: 2 s R V bytes (s R V without the gradient); no logits are written in f32.
//
// A row has v logits and may be wider; the gradient of the rest is 0.
//
// A thread adds in f32, about 100 elements with V = 50257. The losses of the rows are stored, and added in f64 by
// 256 threads and then as a tree. Those of earlier rows come first, as if all were rows of one operand.
#include <algorithm>

#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

constexpr int kMostThreads = 512, kChains = 256;
constexpr float kLog2e = 1.44269504088896341f;

// The largest element and the sum of exp(x - largest) of some elements.
struct Peak {
  float top, sum;
};

// Returns what to subtract before exp: `top`, or 0 if there are no elements.
__device__ __forceinline__ float shift_of(float top) {
  return top == -INFINITY ? 0.0f : top;
}
// Returns exp(x - shift). The product with log2(e) comes after the difference, which may be all that is finite.
__device__ __forceinline__ float shifted_exp(float x, float shift) {
  return exp2_of((x - shift) * kLog2e);
}

__device__ __forceinline__ Peak join(const Peak& a, const Peak& b) {
  const float top = fmaxf(a.top, b.top), shift = shift_of(top);
  return {top, a.sum * shifted_exp(a.top, shift) + b.sum * shifted_exp(b.top, shift)};
}

// Adds the first `count` elements of a pack, all of them unless kMasked.
template <bool kMasked, int kN>
__device__ __forceinline__ void add_pack(Peak& peak, const float (&x)[kN], int64_t count) {
  float top = peak.top;
#pragma unroll
  for (int k = 0; k < kN; ++k)
    if (!kMasked || k < count) top = fmaxf(top, x[k]);
  const float shift = shift_of(top);
  peak.sum *= shifted_exp(peak.top, shift);
#pragma unroll
  for (int k = 0; k < kN; ++k)
    if (!kMasked || k < count) peak.sum += shifted_exp(x[k], shift);
  peak.top = top;
}

__device__ __forceinline__ Peak join_block(Peak mine) {
  __shared__ Peak of_warp[kMostThreads / 32];
#pragma unroll
  for (int m = 16; m > 0; m /= 2) {
    const Peak other{__shfl_xor_sync(~0u, mine.top, m), __shfl_xor_sync(~0u, mine.sum, m)};
    mine = join(mine, other);
  }
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = mine;
  __syncthreads();
  mine = of_warp[0];
  for (unsigned w = 1; w < blockDim.x / 32; ++w) mine = join(mine, of_warp[w]);
  return mine;
}

// The row of a block, and the packs of a thread in it.
template <class T>
struct RowOfBlock {
  const T* x;
  T* d;  // may be x, or null
  int64_t v, target;
  float shift, scale, d_loss;

  // Replaces the logits of a pack that begins at `at` by their gradients.
  template <int kN>
  __device__ __forceinline__ void differentiate(float (&values)[kN], int64_t at) const {
#pragma unroll
    for (int k = 0; k < kN; ++k) {
      const float p = shifted_exp(values[k], shift) * scale;
      values[k] = (at + k == target ? p - 1.0f : p) * d_loss;
    }
  }
};

// The loss of a row, and its gradient. d_logits may be logits, or null; `state` is read only with d_logits.
// kAligned: the rows of both consist of whole aligned packs. Then the order of the sums is the same as otherwise,
// but loads need no masks and no shifts.
// SASS <?*16, true>: threads 512, blocks 2, loads 4
template <class T, bool kAligned>
__global__ void __launch_bounds__(kMostThreads, 2)
    cross_entropy_kernel(const T* logits, const int32_t* targets, int64_t v, int64_t width,
                         const StepState* state, float weight, double* losses, T* d_logits) {
  constexpr int kN = pack_of(sizeof(T));
  constexpr int kAhead = kAligned ? 4 : 2;  // packs that a thread loads at a time
  const int64_t r = blockIdx.x;
  RowOfBlock<T> row{
      logits + r * width, d_logits ? d_logits + r * width : nullptr, v, targets[r], 0, 0, 0};
  // In the sums, a thread has the same elements wherever the row starts; in the gradient, aligned ones.
  const int64_t mine_begin = kN * static_cast<int64_t>(threadIdx.x);
  const int64_t begin = (kAligned ? 0 : pack_start<kN>(row.x)) + mine_begin;
  const int64_t step = kN * static_cast<int64_t>(blockDim.x);
  if (row.target < 0) {
    const float zeros[kN] = {};
    if (row.d)
      for (int64_t at = begin; at < width; at += step)
        store_pack<kAligned>(zeros, row.d, at, width);
    if (threadIdx.x == 0) losses[r] = 0;
    return;
  }
  const float hit = widen(row.x[row.target]);
  Peak mine{-INFINITY, 0};
  int64_t at = mine_begin;
  // Unaligned packs are loaded with their neighbours, so they stay away from the row's ends.
  constexpr int64_t kMargin = kAligned ? 0 : kAround<T, kN>;
  if (at < kMargin) {
    float x[kN];
    load_constant(row.x, at, v, x);
    add_pack<true>(mine, x, v - at);
    at += step;
  }
#pragma unroll 1
  for (; at + (kAhead - 1) * step + kN + kMargin <= v; at += kAhead * step) {
    if constexpr (kAligned) {
      PackOf<true, T, kN> packs[kAhead];
#pragma unroll
      for (int j = 0; j < kAhead; ++j) packs[j].load(row.x, at + j * step);
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        float x[kN];
        packs[j].widen_to(x);
        add_pack<false>(mine, x, kN);
      }
    } else {
      float x[kAhead][kN];
#pragma unroll
      for (int j = 0; j < kAhead; ++j) load_between(row.x + at + j * step, x[j]);
#pragma unroll
      for (int j = 0; j < kAhead; ++j) add_pack<false>(mine, x[j], kN);
    }
  }
#pragma unroll 1
  for (; at < v; at += step) {
    float x[kN];
    load_constant(row.x, at, v, x);
    add_pack<true>(mine, x, v - at);
  }
  const Peak peak = join_block(mine);
  if (threadIdx.x == 0)
    losses[r] = log(static_cast<double>(peak.sum)) +
                (static_cast<double>(peak.top) - static_cast<double>(hit));
  if (!row.d) return;
  for (int64_t i = v + threadIdx.x; i < width; i += blockDim.x) row.d[i] = narrow<T>(0.0f);
  row.shift = shift_of(peak.top);
  row.scale = 1.0f / peak.sum;
  row.d_loss = state->d_loss * weight;
  // Packs of the row are aligned. Those of the gradient are too if it is in place.
  const bool whole = kAligned || aligned<kN>(row.d + pack_start<kN>(row.x));
  const auto masked = [&] {
    float x[kN];
    load(row.x, at, v, x);
    row.differentiate(x, at);
    store(x, row.d, at, v);
    at += step;
  };
  at = begin;
  if (at < 0) masked();
#pragma unroll 1
  for (; whole && at + (kAhead - 1) * step + kN <= v; at += kAhead * step) {
    PackOf<true, T, kN> packs[kAhead];
#pragma unroll
    for (int j = 0; j < kAhead; ++j) packs[j].load(row.x, at + j * step);
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      float x[kN];
      packs[j].widen_to(x);
      row.differentiate(x, at + j * step);
      store_pack<true>(x, row.d, at + j * step, v);
    }
  }
#pragma unroll 1
  while (at < v) masked();
}

__global__ void __launch_bounds__(kChains)
    add_losses(const double* before, int64_t earlier, const double* losses, int64_t rows,
               double* loss, bool add) {
  __shared__ double chain[kChains];
  double mine = 0;
  for (int64_t r = threadIdx.x; r < earlier + rows; r += kChains)
    mine += r < earlier ? before[r] : losses[r - earlier];
  chain[threadIdx.x] = mine;
  for (unsigned half = kChains / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) chain[threadIdx.x] += chain[threadIdx.x + half];
  }
  if (threadIdx.x == 0) *loss = add ? *loss + chain[0] : chain[0];
}

}  // namespace

int64_t cross_entropy_workspace(const KernelSpec& spec) {
  if (attrs_as<CrossEntropyAttrs>(spec.attrs).by_row) return 0;
  return rows(spec.in[0]) * size_of(DType::f64);
}

std::unique_ptr<Kernel> make_cross_entropy(const KernelSpec& spec, const LaunchContext& context) {
  const int64_t r = rows(spec.in[0]), width = columns(spec.in[0]);
  const auto attrs = attrs_as<CrossEntropyAttrs>(spec.attrs);
  const int64_t v = attrs.classes > 0 ? attrs.classes : width;
  const int64_t earlier = present(spec.in, 2) ? elements(spec.in[2]) : 0;
  const auto warps = static_cast<unsigned>(std::clamp<int64_t>(v / 256, 1, kMostThreads / 32));
  return kernel_of([context, r, v, width, warps, earlier, by_row = attrs.by_row,
                    weight = attrs.weight, dtype = spec.in[0].dtype](const KernelCall& call) {
    auto* losses = by_row ? data<double>(call.out, 0) : workspace<double>(call, r);
    with_type(dtype, [&](auto t) {
      using T = decltype(t);
      if (r == 0) return;
      const T* logits = data<const T>(call.in, 0);
      T* d_logits = data<T>(call.out, 1);
      with_flag(whole_packs<pack_of(sizeof(T))>(width, logits, d_logits), [&](auto aligned) {
        launch(context.stream, "cross_entropy", Grid{static_cast<unsigned>(r), 32 * warps},
               cross_entropy_kernel<T, decltype(aligned)::value>, logits,
               data<const int32_t>(call.in, 1), v, width, call.state, weight, losses, d_logits);
      });
    });
    if (by_row) return;
    launch(context.stream, "cross_entropy (sum)", Grid{1, kChains}, add_losses,
           data<const double>(call.in, 2), earlier, losses, r, data<double>(call.out, 0),
           call.accumulate);
  });
}

}  // namespace dstrain::DSTRAIN_BACKEND
