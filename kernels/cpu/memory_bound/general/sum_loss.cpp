// sum_loss: the f64 sum of elements in order, and the same gradient for each. A loss has few elements.
#include "kernels/cpu/memory_bound/general/with_floats.h"
#include "kernels/cpu/memory_bound/kernels.h"

namespace dstrain::simd {
namespace {

template <class T>
void sum_loss(const T* x, int64_t n, float d, bool accumulate, double* loss, T* d_x) {
  double sum = accumulate ? *loss : 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(to_float(x[i]));
  *loss = sum;
  for (int64_t i = 0; d_x && i < n; ++i) d_x[i] = from_float<T>(d);
}

}  // namespace

std::unique_ptr<Kernel> make_sum_loss(const KernelSpec& spec) {
  return kernel_of([weight = attrs_as<SumLossAttrs>(spec.attrs).weight, n = elements(spec.in[0]),
                    dtype = spec.in[0].dtype](const KernelCall& call) {
    const float d = weight * call.state->d_loss;
    double* const loss = data<double>(call.out, 0);
    with_floats(dtype, [&](auto type) {
      using T = decltype(type);
      sum_loss(data<const T>(call.in, 0), n, d, call.accumulate, loss, data<T>(call.out, 1));
    });
  });
}

}  // namespace dstrain::simd
