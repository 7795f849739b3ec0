// log_probs and its gradient, one block for each row: the cross-entropy of the row, negative, and its gradient times d_y.
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

int64_t classes_of(const KernelSpec& spec, int64_t width) {
  const int64_t classes = attrs_as<LogProbsAttrs>(spec.attrs).classes;
  return classes > 0 ? classes : width;
}

}  // namespace

std::unique_ptr<Kernel> make_log_probs(const KernelSpec& spec, const LaunchContext& context) {
  const int64_t r = rows(spec.in[0]), width = columns(spec.in[0]);
  return kernel_of([context, r, width, v = classes_of(spec, width),
                    dtype = spec.in[0].dtype](const KernelCall& call) {
    if (r == 0) return;
    with_type(dtype, [&](auto t) {
      using T = decltype(t);
      const T* logits = data<const T>(call.in, 0);
      with_flag(whole_packs<pack_of(sizeof(T))>(width, logits), [&](auto aligned) {
        launch(context.stream, "log_probs", Grid{static_cast<unsigned>(r), loss_threads(v)},
               log_probs_kernel<T, decltype(aligned)::value>, logits,
               data<const int32_t>(call.in, 1), v, width, data<float>(call.out, 0));
      });
    });
  });
}

std::unique_ptr<Kernel> make_log_probs_grad(const KernelSpec& spec, const LaunchContext& context) {
  const int64_t r = rows(spec.in[1]), width = columns(spec.in[1]);
  return kernel_of([context, r, width, v = classes_of(spec, width),
                    dtype = spec.in[1].dtype](const KernelCall& call) {
    if (r == 0) return;
    with_type(dtype, [&](auto t) {
      using T = decltype(t);
      const T* logits = data<const T>(call.in, 1);
      T* d_logits = data<T>(call.out, 0);
      with_flag(whole_packs<pack_of(sizeof(T))>(width, logits, d_logits), [&](auto aligned) {
        launch(context.stream, "log_probs_grad", Grid{static_cast<unsigned>(r), loss_threads(v)},
               log_probs_grad_kernel<T, decltype(aligned)::value>, data<const float>(call.in, 0),
               logits, data<const int32_t>(call.in, 2), v, width, d_logits);
      });
    });
  });
}

}  // namespace dstrain::DSTRAIN_BACKEND
