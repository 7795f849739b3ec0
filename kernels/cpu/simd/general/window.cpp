// window and window_grad. Minimum memory traffic: what is read once, and what is written; window_grad reads each window's
// elements once.
#include "kernels/cpu/simd/general/with_floats.h"
#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/parallel.h"

namespace dstrain::simd {
namespace {

using Dimensions = std::array<WindowAttrs::Dimension, WindowAttrs::kDimensions>;

// Writes row `row` of the result: the windows of one place in a window, along the last dimension.
template <class T>
void window_row(const WindowAttrs& w, const T* x, bool accumulate, T* y, int64_t row) {
  const auto& [d0, d1, d2] = w.dimensions;
  T* const to = y + row * d2.out;
  const int64_t o1 = row % d1.out, o0 = row / d1.out % d0.out, k = row / d1.out / d0.out,
                place = k % w.kernel(), plane = k / w.kernel();
  const int64_t i0 = d0.element(o0, place / d2.kernel / d1.kernel),
                i1 = d1.element(o1, place / d2.kernel % d1.kernel);
  const T* const from = x + ((plane * d0.size + i0) * d1.size + i1) * d2.size;
  const T outside = from_float<T>(w.outside);
  for (int64_t o = 0; o < d2.out; ++o) {
    const int64_t i2 = i0 < 0 || i1 < 0 ? -1 : d2.element(o, place % d2.kernel);
    const T value = i2 < 0 ? outside : from[i2];
    to[o] = accumulate ? from_float<T>(to_float(to[o]) + to_float(value)) : value;
  }
}

// Writes row `row` of the gradient: elements along the last dimension.
template <class T, class To>
void window_grad_row(const WindowAttrs& w, const T* y, bool accumulate, To* x, int64_t row) {
  const auto& [d0, d1, d2] = w.dimensions;
  const int64_t i1 = row % d1.size, i0 = row / d1.size % d0.size, plane = row / d1.size / d0.size;
  To* const to = x + row * d2.size;
  for (int64_t i2 = 0; i2 < d2.size; ++i2) {
    float sum = 0;
    for (int64_t k0 = 0; k0 < d0.kernel; ++k0)
      for (int64_t k1 = 0; k1 < d1.kernel; ++k1)
        for (int64_t k2 = 0; k2 < d2.kernel; ++k2) {
          const int64_t o0 = d0.window(i0, k0), o1 = d1.window(i1, k1), o2 = d2.window(i2, k2);
          if (o0 < 0 || o1 < 0 || o2 < 0) continue;
          const int64_t place = (k0 * d1.kernel + k1) * d2.kernel + k2;
          const int64_t window = (o0 * d1.out + o1) * d2.out + o2;
          sum += to_float(y[(plane * w.kernel() + place) * w.windows() + window]);
        }
    to[i2] = from_float<To>(accumulate ? to_float(to[i2]) + sum : sum);
  }
}

}  // namespace

std::unique_ptr<Kernel> make_window(const KernelSpec& spec) {
  const auto attrs = attrs_as<WindowAttrs>(spec.attrs);
  check(spec.in[0].dtype == spec.out[0].dtype, "windows have the dtype of what they are of");
  return kernel_of(
      [attrs, threads = spec.threads, dtype = spec.in[0].dtype](const KernelCall& call) {
        const int64_t columns = attrs.dimensions[2].out,
                      rows = attrs.planes * attrs.kernel() * attrs.windows() / columns;
        with_floats(dtype, [&](auto type) {
          using T = decltype(type);
          parallel_ranges(threads, rows, row_grain(columns * size_of(dtype)),
                          [&](int64_t begin, int64_t end) {
                            for (int64_t row = begin; row < end; ++row)
                              window_row(attrs, data<const T>(call.in, 0), call.accumulate,
                                         data<T>(call.out, 0), row);
                          });
        });
      });
}

std::unique_ptr<Kernel> make_window_grad(const KernelSpec& spec) {
  return kernel_of([attrs = attrs_as<WindowAttrs>(spec.attrs), threads = spec.threads,
                    from = spec.in[0].dtype, to = spec.out[0].dtype](const KernelCall& call) {
    const int64_t columns = attrs.dimensions[2].size,
                  rows = attrs.planes * attrs.elements() / columns;
    with_floats(from, [&](auto of_windows) {
      with_floats(to, [&](auto of_result) {
        using T = decltype(of_windows);
        using To = decltype(of_result);
        parallel_ranges(threads, rows, row_grain(columns * attrs.kernel() * size_of(from)),
                        [&](int64_t begin, int64_t end) {
                          for (int64_t row = begin; row < end; ++row)
                            window_grad_row(attrs, data<const T>(call.in, 0), call.accumulate,
                                            data<To>(call.out, 0), row);
                        });
      });
    });
  });
}

}  // namespace dstrain::simd
