// Softmax over rows of logits: the largest logit and the sum of exp(x - largest), and the gradient of the loss. A thread block
// has one row. The order of sums depends on the row's length alone.
//
// kAligned: rows consist of whole aligned packs, as `whole_packs` finds. Then the order of the sums is the same as
// otherwise, but loads need no masks and no shifts.
#pragma once

#include <algorithm>

#include "kernels/cuda/memory_bound/access.cuh"

namespace dstrain::DSTRAIN_BACKEND {

inline constexpr int kLossThreads = 512;  // the most of a row
inline constexpr float kLog2e = 1.44269504088896341f;

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
  __shared__ Peak of_warp[kLossThreads / 32];
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

// Returns the peak of v logits. A thread has the same ones wherever the row starts.
template <bool kAligned, class T>
__device__ __forceinline__ Peak peak_of_row(const T* row, int64_t v) {
  constexpr int kN = pack_of(sizeof(T));
  constexpr int kAhead = kAligned ? 4 : 2;  // packs that a thread loads at a time
  const int64_t step = kN * static_cast<int64_t>(blockDim.x);
  Peak mine{-INFINITY, 0};
  int64_t at = kN * static_cast<int64_t>(threadIdx.x);
  // Unaligned packs are loaded with their neighbours, so they stay away from the row's ends.
  constexpr int64_t kMargin = kAligned ? 0 : kAround<T, kN>;
  if (at < kMargin) {
    float x[kN];
    load_constant(row, at, v, x);
    add_pack<true>(mine, x, v - at);
    at += step;
  }
#pragma unroll 1
  for (; at + (kAhead - 1) * step + kN + kMargin <= v; at += kAhead * step) {
    if constexpr (kAligned) {
      PackOf<true, T, kN> packs[kAhead];
#pragma unroll
      for (int j = 0; j < kAhead; ++j) packs[j].load(row, at + j * step);
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        float x[kN];
        packs[j].widen_to(x);
        add_pack<false>(mine, x, kN);
      }
    } else {
      float x[kAhead][kN];
#pragma unroll
      for (int j = 0; j < kAhead; ++j) load_between(row + at + j * step, x[j]);
#pragma unroll
      for (int j = 0; j < kAhead; ++j) add_pack<false>(mine, x[j], kN);
    }
  }
#pragma unroll 1
  for (; at < v; at += step) {
    float x[kN];
    load_constant(row, at, v, x);
    add_pack<true>(mine, x, v - at);
  }
  return join_block(mine);
}

// Returns the sum of v logits. A thread adds every blockDim.x-th one, then warps and the block add as join_block() does.
template <class T>
__device__ __forceinline__ float sum_of_row(const T* row, int64_t v) {
  __shared__ float of_warp[kLossThreads / 32];
  float mine = 0;
  for (int64_t i = threadIdx.x; i < v; i += blockDim.x) mine += widen(row[i]);
#pragma unroll
  for (int m = 16; m > 0; m /= 2) mine += __shfl_xor_sync(~0u, mine, m);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = mine;
  __syncthreads();
  mine = of_warp[0];
  for (unsigned w = 1; w < blockDim.x / 32; ++w) mine += of_warp[w];
  return mine;
}

// What a row's loss has besides the cross-entropy: CrossEntropyAttrs.
struct LossTerms {
  float smoothing, z_loss;
  int64_t all_classes;

  // Returns the loss of a row from the largest logit, the sum of exponentials less it, the target's logit, and the sum of
  // all logits where there is smoothing.
  __device__ __forceinline__ double loss(float top, float sum, float hit, double logits) const {
    const double log_sum = log(static_cast<double>(sum));
    double value = log_sum + (static_cast<double>(top) - static_cast<double>(hit));
    if (smoothing > 0)
      value += static_cast<double>(smoothing) *
               (static_cast<double>(hit) - logits / static_cast<double>(all_classes));
    const double all = log_sum + static_cast<double>(top);
    if (z_loss > 0) value += static_cast<double>(z_loss) * all * all;
    return value;
  }
};

inline LossTerms loss_terms(const CrossEntropyAttrs& attrs, int64_t classes) {
  return {attrs.smoothing, attrs.z_loss,
          std::max<int64_t>(1, attrs.all_classes > 0 ? attrs.all_classes : classes)};
}

// The row of a block, of v logits that count and `width` in all. The gradient of the others is 0.
template <class T>
struct RowOfBlock {
  const T* x;
  T* d;  // may be x
  int64_t v, width, target;
  // The gradient of logit i is (exp(x_i - shift) * scale - everywhere - [i = target] * hit) * d_loss.
  float shift, scale, everywhere, hit, d_loss;

  __device__ __forceinline__ void set_gradient(const LossTerms& terms, float top, float sum,
                                               float of_loss) {
    shift = shift_of(top);
    scale = 1.0f / sum;
    if (terms.z_loss > 0) scale *= 1.0f + 2.0f * terms.z_loss * (logf(sum) + top);
    everywhere = terms.smoothing / static_cast<float>(terms.all_classes);
    hit = 1.0f - terms.smoothing;
    d_loss = of_loss;
  }

  // Replaces the logits of a pack that begins at `at` by their gradients.
  template <int kN>
  __device__ __forceinline__ void differentiate(float (&values)[kN], int64_t at) const {
#pragma unroll
    for (int k = 0; k < kN; ++k) {
      const float p = shifted_exp(values[k], shift) * scale - everywhere;
      values[k] = (at + k == target ? p - hit : p) * d_loss;
    }
  }
};

// Returns the element at which a thread's first pack begins. A thread has aligned packs of its logits.
template <bool kAligned, class T>
__device__ __forceinline__ int64_t first_pack(const RowOfBlock<T>& row) {
  constexpr int kN = pack_of(sizeof(T));
  return (kAligned ? 0 : pack_start<kN>(row.x)) + kN * static_cast<int64_t>(threadIdx.x);
}

// Sets the gradient of a row without a target to zeros.
template <bool kAligned, class T>
__device__ __forceinline__ void clear_row(const RowOfBlock<T>& row) {
  constexpr int kN = pack_of(sizeof(T));
  const float zeros[kN] = {};
  for (int64_t at = first_pack<kAligned>(row); at < row.width;
       at += kN * static_cast<int64_t>(blockDim.x))
    store_pack<kAligned>(zeros, row.d, at, row.width);
}

// Writes the gradient of a row.
template <bool kAligned, class T>
__device__ __forceinline__ void differentiate_row(const RowOfBlock<T>& row) {
  constexpr int kN = pack_of(sizeof(T));
  constexpr int kAhead = kAligned ? 4 : 2;
  const int64_t v = row.v, step = kN * static_cast<int64_t>(blockDim.x);
  for (int64_t i = v + threadIdx.x; i < row.width; i += blockDim.x) row.d[i] = narrow<T>(0.0f);
  // Packs of the row are aligned. Those of the gradient are too if it is in place.
  const bool whole = kAligned || aligned<kN>(row.d + pack_start<kN>(row.x));
  int64_t at = first_pack<kAligned>(row);
  const auto masked = [&](int64_t from) {
    float x[kN];
    load(row.x, from, v, x);
    row.differentiate(x, from);
    store(x, row.d, from, v);
  };
  if (at < 0) {
    masked(at);
    at += step;
  }
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
  for (; at < v; at += step) masked(at);
}

// Returns how many threads a row of v logits has.
inline unsigned loss_threads(int64_t v) {
  return 32 * static_cast<unsigned>(std::clamp<int64_t>(v / 256, 1, kLossThreads / 32));
}

// loss (+)= the `earlier` losses at `before` and then those of `rows` rows, in an order that follows from their number alone.
void add_row_losses(const LaunchContext& context, const double* before, int64_t earlier,
                    const double* losses, int64_t rows, double* loss, bool add);

}  // namespace dstrain::DSTRAIN_BACKEND
