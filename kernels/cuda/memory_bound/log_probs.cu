// log_probs and its gradient, one block for each row: the cross-entropy of the row by each of its targets, negative, and their
// gradients times d_y.
// Minimum memory traffic in bytes, s bytes per element: s R V, and 2 s R V.
#include "kernels/cuda/memory_bound/memory_bound.cuh"
#include "kernels/cuda/memory_bound/softmax_rows.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

// SASS <?*16, true>: threads 512, blocks 2, loads 4
template <class T, bool kAligned>
__global__ void __launch_bounds__(kLossThreads, 2)
    log_probs_kernel(const T* logits, const int32_t* targets, int64_t v, int64_t width, float* y) {
  const int64_t r = blockIdx.x;
  const T* const row = logits + r * width;
  const int32_t target = targets[r];
  if (target < 0) {
    if (threadIdx.x == 0) y[r] = 0;
    return;
  }
  const Peak peak = peak_of_row<kAligned>(row, v);
  if (threadIdx.x == 0)
    y[r] = -static_cast<float>(LossTerms{0, 0, 1}.loss(peak.top, peak.sum, widen(row[target]), 0));
}

// d_logits may be logits.
// SASS <?*16, true>: threads 512, blocks 2, loads 4
template <class T, bool kAligned>
__global__ void __launch_bounds__(kLossThreads, 2)
    log_probs_grad_kernel(const float* d_y, const T* logits, const int32_t* targets, int64_t v,
                          int64_t width, T* d_logits) {
  const int64_t r = blockIdx.x;
  RowOfBlock<T> row{
      logits + r * width, d_logits + r * width, v, width, targets[r], {}, {}, {}, {}, {}};
  if (row.target < 0) {
    clear_row<kAligned>(row);
    return;
  }
  const Peak peak = peak_of_row<kAligned>(row.x, v);
  row.set_gradient({0, 0, 1}, peak.top, peak.sum, -d_y[r]);
  differentiate_row<kAligned>(row);
}

// Returns whether one of `count` targets is none below 0.
__device__ __forceinline__ bool has_target(const int32_t* targets, int64_t count) {
  bool any = false;
  for (int64_t j = 0; j < count; ++j) any |= targets[j] >= 0;
  return any;
}

// The same for several targets of a row.
template <class T, bool kAligned>
__global__ void __launch_bounds__(kLossThreads, 2)
    several_log_probs_kernel(const T* logits, const int32_t* targets, int64_t count, int64_t v,
                             int64_t width, float* y) {
  const int64_t r = blockIdx.x;
  const T* const row = logits + r * width;
  const int32_t* const mine = targets + r * count;
  const Peak peak = has_target(mine, count) ? peak_of_row<kAligned>(row, v) : Peak{0, 1};
  for (int64_t j = threadIdx.x; j < count; j += blockDim.x)
    y[r * count + j] = mine[j] < 0 ? 0.0f
                                   : -static_cast<float>(LossTerms{0, 0, 1}.loss(
                                         peak.top, peak.sum, widen(row[mine[j]]), 0));
}

// d_logits may be logits. Equal targets add their slopes in their order.
template <class T, bool kAligned>
__global__ void __launch_bounds__(kLossThreads, 2)
    several_log_probs_grad_kernel(const float* d_y, const T* logits, const int32_t* targets,
                                  int64_t count, int64_t v, int64_t width, T* d_logits) {
  __shared__ float at_target[LogProbsAttrs::kMostTargets];
  const int64_t r = blockIdx.x;
  const int32_t* const mine = targets + r * count;
  const float* const slopes = d_y + r * count;
  RowOfBlock<T> row{logits + r * width, d_logits + r * width, v, width, -1, {}, {}, {}, {}, {}};
  if (!has_target(mine, count)) {
    clear_row<kAligned>(row);
    return;
  }
  const Peak peak = peak_of_row<kAligned>(row.x, v);
  for (int64_t j = threadIdx.x; j < count; j += blockDim.x)
    at_target[j] = mine[j] < 0 ? 0.0f : widen(row.x[mine[j]]);
  float sum = 0;
  for (int64_t j = 0; j < count; ++j) sum += mine[j] < 0 ? 0.0f : slopes[j];
  row.set_gradient({0, 0, 1}, peak.top, peak.sum, -sum);
  __syncthreads();
  differentiate_row<kAligned>(row);
  __syncthreads();
  for (int64_t j = threadIdx.x; j < count; j += blockDim.x) {
    bool first = mine[j] >= 0;
    for (int64_t i = 0; first && i < j; ++i) first = mine[i] != mine[j];
    if (!first) continue;
    float slope = 0;
    for (int64_t i = j; i < count; ++i) slope += mine[i] == mine[j] ? slopes[i] : 0.0f;
    const float p = shifted_exp(at_target[j], row.shift) * row.scale;
    row.d[mine[j]] = narrow<T>(p * row.d_loss + slope);
  }
}

int64_t classes_of(const KernelSpec& spec, int64_t width) {
  const int64_t classes = attrs_as<LogProbsAttrs>(spec.attrs).classes;
  return classes > 0 ? classes : width;
}

}  // namespace

std::unique_ptr<Kernel> make_log_probs(const KernelSpec& spec, const LaunchContext& context) {
  const int64_t r = rows(spec.in[0]), width = columns(spec.in[0]);
  return kernel_of([context, r, width, v = classes_of(spec, width), all = elements(spec.in[1]),
                    dtype = spec.in[0].dtype](const KernelCall& call) {
    if (r == 0) return;
    with_type(dtype, [&](auto t) {
      using T = decltype(t);
      const T* logits = data<const T>(call.in, 0);
      const auto* const targets = data<const int32_t>(call.in, 1);
      auto* const y = data<float>(call.out, 0);
      const Grid grid{static_cast<unsigned>(r), loss_threads(v)};
      with_flag(whole_packs<pack_of(sizeof(T))>(width, logits), [&](auto aligned) {
        constexpr bool kAligned = decltype(aligned)::value;
        if (all == r)
          launch(context.stream, "log_probs", grid, log_probs_kernel<T, kAligned>, logits, targets,
                 v, width, y);
        else
          launch(context.stream, "log_probs", grid, several_log_probs_kernel<T, kAligned>, logits,
                 targets, all / r, v, width, y);
      });
    });
  });
}

std::unique_ptr<Kernel> make_log_probs_grad(const KernelSpec& spec, const LaunchContext& context) {
  const int64_t r = rows(spec.in[1]), width = columns(spec.in[1]);
  return kernel_of([context, r, width, v = classes_of(spec, width), all = elements(spec.in[2]),
                    dtype = spec.in[1].dtype](const KernelCall& call) {
    if (r == 0) return;
    with_type(dtype, [&](auto t) {
      using T = decltype(t);
      const T* logits = data<const T>(call.in, 1);
      T* d_logits = data<T>(call.out, 0);
      const auto* const d_y = data<const float>(call.in, 0);
      const auto* const targets = data<const int32_t>(call.in, 2);
      const Grid grid{static_cast<unsigned>(r), loss_threads(v)};
      with_flag(whole_packs<pack_of(sizeof(T))>(width, logits, d_logits), [&](auto aligned) {
        constexpr bool kAligned = decltype(aligned)::value;
        if (all == r)
          launch(context.stream, "log_probs_grad", grid, log_probs_grad_kernel<T, kAligned>, d_y,
                 logits, targets, v, width, d_logits);
        else
          launch(context.stream, "log_probs_grad", grid, several_log_probs_grad_kernel<T, kAligned>,
                 d_y, logits, targets, all / r, v, width, d_logits);
      });
    });
  });
}

}  // namespace dstrain::DSTRAIN_BACKEND
