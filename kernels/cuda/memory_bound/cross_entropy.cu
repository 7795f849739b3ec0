// Softmax cross-entropy and its gradient, one block for each row: the largest logit and the sum of
// exp(x - largest) in one pass, then d = (p - [i = target]) * d_loss, for which the row is read again from the L2
// cache. Minimum memory traffic: 2 s R V bytes (s R V without the gradient); no logits are written in f32.
//
// A thread adds in f32, about 50 elements with V = 50257. The losses of the rows are stored, and added in f64 by
// 256 threads and then as a tree.
#include <algorithm>

#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

constexpr int kMostThreads = 1024, kChains = 256;

// The largest element and the sum of exp(x - largest) of some elements.
struct Peak {
  float top, sum;
};

// Returns exp(x - top), or 0 if there are no elements.
__device__ __forceinline__ float shifted_exp(float x, float top) {
  return __expf(x - (top == -INFINITY ? 0.0f : top));
}

__device__ __forceinline__ Peak join(const Peak& a, const Peak& b) {
  const float top = fmaxf(a.top, b.top);
  return {top, a.sum * shifted_exp(a.top, top) + b.sum * shifted_exp(b.top, top)};
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

// d_logits may be logits, or null; `state` is read only with d_logits.
template <class T>
__global__ void __launch_bounds__(kMostThreads)
    cross_entropy_kernel(const T* logits, const int32_t* targets, int64_t v, const StepState* state,
                         double* losses, T* d_logits) {
  constexpr int kN = pack_of(sizeof(T));
  const int64_t r = blockIdx.x;
  const T* row = logits + r * v;
  const int32_t target = targets[r];
  // In the sums, a thread has the same elements wherever the row starts; in the gradient, aligned ones.
  const int64_t mine_begin = kN * static_cast<int64_t>(threadIdx.x);
  const int64_t begin = pack_start<kN>(row) + mine_begin;
  const int64_t step = kN * static_cast<int64_t>(blockDim.x);
  if (target < 0) {
    const float zeros[kN] = {};
    if (d_logits)
      for (int64_t at = begin; at < v; at += step) store(zeros, d_logits + r * v, at, v);
    if (threadIdx.x == 0) losses[r] = 0;
    return;
  }
  const float hit = widen(row[target]);
  Peak mine{-INFINITY, 0};
  for (int64_t at = mine_begin; at < v; at += step) {
    float x[kN];
    load_constant(row, at, v, x);
    float top = mine.top;
#pragma unroll
    for (int k = 0; k < kN; ++k)
      if (at + k < v) top = fmaxf(top, x[k]);
    mine.sum *= shifted_exp(mine.top, top);
#pragma unroll
    for (int k = 0; k < kN; ++k)
      if (at + k < v) mine.sum += shifted_exp(x[k], top);
    mine.top = top;
  }
  const Peak peak = join_block(mine);
  if (threadIdx.x == 0)
    losses[r] = log(static_cast<double>(peak.sum)) +
                (static_cast<double>(peak.top) - static_cast<double>(hit));
  if (!d_logits) return;
  const float scale = 1.0f / peak.sum, d_loss = state->d_loss;
  for (int64_t at = begin; at < v; at += step) {
    float x[kN];
    load(row, at, v, x);
#pragma unroll
    for (int k = 0; k < kN; ++k) {
      const float p = shifted_exp(x[k], peak.top) * scale;
      x[k] = (at + k == target ? p - 1.0f : p) * d_loss;
    }
    store(x, d_logits + r * v, at, v);
  }
}

__global__ void __launch_bounds__(kChains)
    add_losses(const double* losses, int64_t rows, double* loss, bool add) {
  __shared__ double chain[kChains];
  double mine = 0;
  for (int64_t r = threadIdx.x; r < rows; r += kChains) mine += losses[r];
  chain[threadIdx.x] = mine;
  for (unsigned half = kChains / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) chain[threadIdx.x] += chain[threadIdx.x + half];
  }
  if (threadIdx.x == 0) *loss = add ? *loss + chain[0] : chain[0];
}

}  // namespace

int64_t cross_entropy_workspace(const KernelSpec& spec) {
  return rows(spec.in[0]) * size_of(DType::f64);
}

std::unique_ptr<Kernel> make_cross_entropy(const KernelSpec& spec, const LaunchContext& context) {
  const int64_t r = rows(spec.in[0]), v = columns(spec.in[0]);
  const auto warps = static_cast<unsigned>(std::clamp<int64_t>(v / 256, 1, kMostThreads / 32));
  return kernel_of([context, r, v, warps, dtype = spec.in[0].dtype](const KernelCall& call) {
    auto* losses = call.workspace.as<double>();
    with_type(dtype, [&](auto t) {
      using T = decltype(t);
      if (r > 0)
        launch(context.stream, "cross_entropy", Grid{static_cast<unsigned>(r), 32 * warps},
               cross_entropy_kernel<T>, data<const T>(call.in, 0), data<const int32_t>(call.in, 1),
               v, call.state, losses, data<T>(call.out, 1));
    });
    launch(context.stream, "cross_entropy (sum)", Grid{1, kChains}, add_losses, losses, r,
           data<double>(call.out, 0), call.accumulate);
  });
}

}  // namespace dstrain::DSTRAIN_BACKEND
