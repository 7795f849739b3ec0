// Operands of products, and reference results in double precision.
#pragma once

#include <cmath>
#include <numeric>
#include <vector>

#include "tests/kernels/parity/device_limits.h"
#include "tests/kernels/parity/run_kernel.h"

namespace dstrain::products_test {

using parity::Guarded;
using Values = std::vector<double>;

inline constexpr DType kDTypes[] = {DType::f32, DType::bf16, DType::f16};

// The sizes of a product: x has (rows, in) elements, w (out, in), and the result (rows, out).
struct Size {
  int64_t rows, in, out;
};

// Returns the sizes that are within the device's budget.
inline std::vector<Size> sizes() {
  std::vector<Size> list = {{1, 1, 1},     {1, 64, 65},   {7, 1, 3},      {5, 33, 17},
                            {64, 64, 64},  {33, 65, 129}, {100, 768, 65}, {17, 200, 515},
                            {2, 16, 9001}, {2, 9001, 16}, {520, 40, 300}, {300, 300, 1030},
                            {4500, 20, 40}};
  std::erase_if(
      list, [](const Size& s) { return s.rows * s.in * s.out > parity::device_limits().budget; });
  return list;
}

// Returns x w^T in double precision.
inline Values multiply(const Size& s, const Values& x, const Values& w) {
  Values y(static_cast<size_t>(s.rows * s.out));
  for (int64_t r = 0; r < s.rows; ++r)
    for (int64_t n = 0; n < s.out; ++n)
      y[static_cast<size_t>(r * s.out + n)] = std::inner_product(
          x.begin() + r * s.in, x.begin() + (r + 1) * s.in, w.begin() + n * s.in, 0.0);
  return y;
}

// Returns y with the bias added unless it is null, and relu applied if `relu`.
inline Values finished(const Size& s, Values y, const Values* bias, bool relu) {
  for (int64_t i = 0; i < s.rows * s.out; ++i) {
    double& v = y[static_cast<size_t>(i)];
    if (bias) v += (*bias)[static_cast<size_t>(i % s.out)];
    if (relu) v = std::max(v, 0.0);
  }
  return y;
}

inline Values input_grad(const Size& s, const Values& d_y, const Values& w) {
  Values d_x(static_cast<size_t>(s.rows * s.in));
  for (int64_t r = 0; r < s.rows; ++r)
    for (int64_t n = 0; n < s.out; ++n)
      for (int64_t k = 0; k < s.in; ++k)
        d_x[static_cast<size_t>(r * s.in + k)] +=
            d_y[static_cast<size_t>(r * s.out + n)] * w[static_cast<size_t>(n * s.in + k)];
  return d_x;
}

inline Values weight_grad(const Size& s, const Values& d_y, const Values& x, Values d_w) {
  for (int64_t r = 0; r < s.rows; ++r)
    for (int64_t n = 0; n < s.out; ++n)
      for (int64_t k = 0; k < s.in; ++k)
        d_w[static_cast<size_t>(n * s.in + k)] +=
            d_y[static_cast<size_t>(r * s.out + n)] * x[static_cast<size_t>(r * s.in + k)];
  return d_w;
}

inline Values rounded(Values v, DType dtype) {
  const Guarded g(Shape{static_cast<int64_t>(v.size())}, dtype, v);
  return g.values();
}

// Small integers: every sum is exact in f32, so every order of additions gives the same bits.
inline Values integers(int64_t n, uint64_t seed) {
  return parity::integer_values(n, seed, -3, 4);
}

inline parity::Tolerance tolerance(DType dtype, int64_t k) {
  return parity::tolerance_of(dtype, 4 * std::sqrt(static_cast<double>(k)));
}

inline std::string describe(const char* op, DType dtype, const Size& s) {
  return fmt::format("{} {} R={} K={} N={}", op, name_of(dtype), s.rows, s.in, s.out);
}

// The operands of products of one size: x, w, the bias, and the gradient of the result.
struct Operands {
  Guarded x, w, bias, d_y;

  // Activations are aligned. Weights start at a multiple of 16 elements in a run; here at odd elements too.
  static int64_t start(const Size& s) { return s.rows % 2 == 0 ? 16 : 1; }
  Operands(const Size& s, DType dtype, Values (*fill)(int64_t, uint64_t))
      : x({s.rows, s.in}, dtype, fill(s.rows * s.in, 1)),
        w({s.out, s.in}, dtype, fill(s.out * s.in, 2), start(s)),
        bias({s.out}, dtype, fill(s.out, 3), 3 * start(s)),
        d_y({s.rows, s.out}, dtype, fill(s.rows * s.out, 4)) {}
};

inline Values gaussian(int64_t n, uint64_t seed) {
  return parity::normal_values(n, seed);
}

inline parity::Call call_of(OpKind op, int threads = 1) {
  parity::Call call;
  call.op = op;
  call.threads = threads;
  return call;
}

inline parity::Call relu_call(int threads = 1) {
  parity::Call call = call_of(OpKind::linear, threads);
  call.attrs = ActivationAttrs{.activation = Activation::relu};
  return call;
}

}  // namespace dstrain::products_test
