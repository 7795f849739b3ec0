// sum_loss: the f64 sum of elements in order, and the same gradient for each. A loss has few elements: one block adds them.
#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads)
    sum_loss(const T* x, int64_t n, float weight, const StepState* state, bool accumulate,
             double* loss, T* d_x) {
  if (threadIdx.x == 0) {
    double sum = accumulate ? *loss : 0;
    for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(widen(x[i]));
    *loss = sum;
  }
  if (!d_x) return;
  for (int64_t i = threadIdx.x; i < n; i += kThreads) d_x[i] = narrow<T>(weight * state->d_loss);
}

}  // namespace

std::unique_ptr<Kernel> make_sum_loss(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of([context, weight = attrs_as<SumLossAttrs>(spec.attrs).weight,
                    n = elements(spec.in[0]), dtype = spec.in[0].dtype](const KernelCall& call) {
    with_type(dtype, [&](auto type) {
      using T = decltype(type);
      launch(context.stream, "sum_loss", Grid{1, kThreads}, sum_loss<T>, data<const T>(call.in, 0),
             n, weight, call.state, call.accumulate, data<double>(call.out, 0),
             data<T>(call.out, 1));
    });
  });
}

}  // namespace dstrain::DSTRAIN_BACKEND
