#include "kernels/cpu/products/products.h"

#include <omp.h>

#include "runtime/core/error.h"
#include "tests/kernels/parity.h"

namespace dstrain {
namespace {

using parity::Guarded;
using Values = std::vector<double>;

constexpr DType kDTypes[] = {DType::f32, DType::bf16, DType::f16};
const parity::Bodies kBodies{make_product, product_workspace_bytes};

struct Size {
  int64_t rows, in, out;
};
constexpr Size kSizes[] = {{1, 1, 1},     {1, 64, 65},   {7, 1, 3},      {5, 33, 17},
                           {64, 64, 64},  {33, 65, 129}, {100, 768, 65}, {17, 200, 515},
                           {2, 16, 9001}, {2, 9001, 16}, {520, 40, 300}, {300, 300, 1030},
                           {4500, 20, 40}};

// x w^T in double.
Values multiply(const Size& s, const Values& x, const Values& w) {
  Values y(static_cast<size_t>(s.rows * s.out));
  for (int64_t r = 0; r < s.rows; ++r)
    for (int64_t n = 0; n < s.out; ++n)
      y[static_cast<size_t>(r * s.out + n)] = std::inner_product(
          x.begin() + r * s.in, x.begin() + (r + 1) * s.in, w.begin() + n * s.in, 0.0);
  return y;
}

// relu(y + bias), either one where asked.
Values finished(const Size& s, Values y, const Values* bias, bool relu) {
  for (int64_t i = 0; i < s.rows * s.out; ++i) {
    double& v = y[static_cast<size_t>(i)];
    if (bias) v += (*bias)[static_cast<size_t>(i % s.out)];
    if (relu) v = std::max(v, 0.0);
  }
  return y;
}

Values input_grad(const Size& s, const Values& d_y, const Values& w) {
  Values d_x(static_cast<size_t>(s.rows * s.in));
  for (int64_t r = 0; r < s.rows; ++r)
    for (int64_t n = 0; n < s.out; ++n)
      for (int64_t k = 0; k < s.in; ++k)
        d_x[static_cast<size_t>(r * s.in + k)] +=
            d_y[static_cast<size_t>(r * s.out + n)] * w[static_cast<size_t>(n * s.in + k)];
  return d_x;
}

Values weight_grad(const Size& s, const Values& d_y, const Values& x, Values d_w) {
  for (int64_t r = 0; r < s.rows; ++r)
    for (int64_t n = 0; n < s.out; ++n)
      for (int64_t k = 0; k < s.in; ++k)
        d_w[static_cast<size_t>(n * s.in + k)] +=
            d_y[static_cast<size_t>(r * s.out + n)] * x[static_cast<size_t>(r * s.in + k)];
  return d_w;
}

Values rounded(Values v, DType dtype) {
  const Guarded g(Shape{static_cast<int64_t>(v.size())}, dtype, v);
  return g.values();
}

// Small integers: every sum is exact in f32, so every order of additions gives the same bits.
Values integers(int64_t n, uint64_t seed) {
  return parity::integer_values(n, seed, -3, 4);
}

parity::Tolerance tolerance(DType dtype, int64_t k) {
  return parity::tolerance_of(dtype, 4 * std::sqrt(static_cast<double>(k)));
}

std::string describe(const char* op, DType dtype, const Size& s) {
  return fmt::format("{} {} R={} K={} N={}", op, name_of(dtype), s.rows, s.in, s.out);
}

struct Operands {
  Guarded x, w, bias, d_y;

  // Activations are aligned; weights are views at any multiple of 16 elements, here at any at all.
  Operands(const Size& s, DType dtype, Values (*fill)(int64_t, uint64_t))
      : x({s.rows, s.in}, dtype, fill(s.rows * s.in, 1)),
        w({s.out, s.in}, dtype, fill(s.out * s.in, 2), 1),
        bias({s.out}, dtype, fill(s.out, 3), 3),
        d_y({s.rows, s.out}, dtype, fill(s.rows * s.out, 4)) {}
};

Values gaussian(int64_t n, uint64_t seed) {
  return parity::normal_values(n, seed);
}

parity::Call call_of(OpKind op, int threads = 2) {
  parity::Call call;
  call.op = op;
  call.threads = threads;
  return call;
}

parity::Call relu_call(int threads = 2) {
  parity::Call call = call_of(OpKind::linear, threads);
  call.attrs.activation = Activation::relu;
  return call;
}

TEST_CASE("products of small integers are exact in every dtype, at odd sizes and offsets") {
  for (const DType dtype : kDTypes) {
    for (const Size& s : kSizes) {
      const Operands o(s, dtype, integers);
      const Values bias = o.bias.values();
      const Values sums = multiply(s, o.x.values(), o.w.values());
      for (const bool relu : {false, true}) {
        for (const bool biased : {false, true}) {
          Guarded y({s.rows, s.out}, dtype, 1);
          parity::run_kernel(kBodies, relu ? relu_call() : call_of(OpKind::linear),
                             {&o.x, &o.w, biased ? &o.bias : nullptr, nullptr}, {&y});
          const Values expected = finished(s, sums, biased ? &bias : nullptr, relu);
          parity::require_close(describe("linear", dtype, s), y.values(), rounded(expected, dtype),
                                {});
        }
      }
      Guarded d_x({s.rows, s.in}, dtype, 5);
      parity::run_kernel(kBodies, call_of(OpKind::linear_input_grad), {&o.d_y, &o.w, nullptr},
                         {&d_x});
      parity::require_close(describe("input grad", dtype, s), d_x.values(),
                            rounded(input_grad(s, o.d_y.values(), o.w.values()), dtype), {});

      Guarded d_w({s.out, s.in}, DType::f32, 7);
      parity::run_kernel(kBodies, call_of(OpKind::linear_weight_grad), {&o.d_y, &o.x}, {&d_w});
      const Values zero(static_cast<size_t>(s.out * s.in));
      const Values once = weight_grad(s, o.d_y.values(), o.x.values(), zero);
      parity::require_close(describe("weight grad", dtype, s), d_w.values(), once, {});

      parity::Call add = call_of(OpKind::linear_weight_grad);
      add.accumulate = true;
      parity::run_kernel(kBodies, add, {&o.d_y, &o.x}, {&d_w});
      parity::require_close(describe("added weight grad", dtype, s), d_w.values(),
                            weight_grad(s, o.d_y.values(), o.x.values(), once), {});
    }
  }
}

TEST_CASE("products of any numbers are within one rounding of the double-precision result") {
  for (const DType dtype : kDTypes) {
    for (const Size& s : {Size{33, 65, 129}, Size{100, 768, 65}, Size{520, 40, 300}}) {
      const Operands o(s, dtype, gaussian);
      const Values bias = o.bias.values();
      Guarded y({s.rows, s.out}, dtype);
      parity::run_kernel(kBodies, relu_call(), {&o.x, &o.w, &o.bias}, {&y});
      parity::require_close(describe("linear", dtype, s), y.values(),
                            finished(s, multiply(s, o.x.values(), o.w.values()), &bias, true),
                            tolerance(dtype, s.in));
      Guarded d_x({s.rows, s.in}, dtype);
      parity::run_kernel(kBodies, call_of(OpKind::linear_input_grad), {&o.d_y, &o.w}, {&d_x});
      parity::require_close(describe("input grad", dtype, s), d_x.values(),
                            input_grad(s, o.d_y.values(), o.w.values()), tolerance(dtype, s.out));
      const Values start = gaussian(s.out * s.in, 9);
      Guarded d_w({s.out, s.in}, DType::f32, start);
      parity::Call add = call_of(OpKind::linear_weight_grad);
      add.accumulate = true;
      parity::run_kernel(kBodies, add, {&o.d_y, &o.x}, {&d_w});
      parity::require_close(describe("weight grad", dtype, s), d_w.values(),
                            weight_grad(s, o.d_y.values(), o.x.values(), start),
                            tolerance(DType::f32, s.rows));
    }
  }
}

TEST_CASE("a product gives the same bits each time it runs") {
  const Size s{300, 300, 1030};
  for (const DType dtype : kDTypes) {
    const Operands o(s, dtype, gaussian);
    for (const int threads : {1, 2, 3}) {
      Guarded first({s.rows, s.out}, dtype), again({s.rows, s.out}, dtype);
      for (Guarded* y : {&first, &again})
        parity::run_kernel(kBodies, relu_call(threads), {&o.x, &o.w, &o.bias}, {y});
      parity::require_same_bits(describe("linear", dtype, s), first, again);
      Guarded d_w({s.out, s.in}, DType::f32), d_w_again({s.out, s.in}, DType::f32);
      for (Guarded* d : {&d_w, &d_w_again})
        parity::run_kernel(kBodies, call_of(OpKind::linear_weight_grad, threads), {&o.d_y, &o.x},
                           {d});
      parity::require_same_bits(describe("weight grad", dtype, s), d_w, d_w_again);
    }
  }
}

TEST_CASE("an element has the same bits in operands at any alignment") {
  const Size s{130, 200, 70};
  for (const DType dtype : kDTypes) {
    const Values x = gaussian(s.rows * s.in, 1), w = gaussian(s.out * s.in, 2);
    Guarded aligned({s.rows, s.out}, dtype);
    const Guarded x0({s.rows, s.in}, dtype, x), w0({s.out, s.in}, dtype, w);
    parity::run_kernel(kBodies, call_of(OpKind::linear), {&x0, &w0}, {&aligned});
    for (const int64_t offset : {1, 7, 16}) {
      Guarded shifted({s.rows, s.out}, dtype, offset);
      const Guarded x1({s.rows, s.in}, dtype, x, offset), w1({s.out, s.in}, dtype, w, offset);
      parity::run_kernel(kBodies, call_of(OpKind::linear), {&x1, &w1}, {&shifted});
      parity::require_same_bits(describe("linear", dtype, s), aligned, shifted);
    }
  }
}

TEST_CASE("a product leaves the process's thread count alone") {
  const int before = omp_get_max_threads();
  const Size s{40, 40, 40};
  for (const DType dtype : kDTypes) {
    const Operands o(s, dtype, integers);
    Guarded y({s.rows, s.out}, dtype);
    parity::run_kernel(kBodies, call_of(OpKind::linear, before + 1), {&o.x, &o.w}, {&y});
    REQUIRE(omp_get_max_threads() == before);
  }
}

TEST_CASE("a packed weight gives the same bits as a plain one") {
  for (const DType dtype : kDTypes) {
    for (const Size& s : kSizes) {
      const Operands o(s, dtype, gaussian);
      for (const bool backward : {false, true}) {
        const OpKind op = backward ? OpKind::linear_input_grad : OpKind::linear;
        const Guarded& a = backward ? o.d_y : o.x;
        std::vector<const Guarded*> in = {&a, &o.w, nullptr};
        if (!backward) in.push_back(nullptr);
        std::vector<TensorSpec> specs;
        for (const Guarded* g : in) specs.push_back(g ? g->spec() : TensorSpec{});
        const Shape shape{s.rows, backward ? s.in : s.out};
        Guarded plain(shape, dtype), packed(shape, dtype);
        const TensorSpec out = plain.spec();
        const int64_t bytes = product_packed_bytes({op, {}, specs, {&out, 1}, 2});
        if (bytes == 0) continue;
        Guarded buffer({bytes}, DType::u8);
        parity::Call pack = call_of(OpKind::pack_weight);
        pack.attrs.rows = s.rows;
        pack.attrs.for_input_grad = backward;
        parity::run_kernel(kBodies, pack, {&o.w}, {&buffer});
        parity::run_kernel(kBodies, call_of(op), in, {&plain});
        in.back() = &buffer;
        parity::run_kernel(kBodies, call_of(op), in, {&packed});
        parity::require_same_bits(describe("packed", dtype, s), plain, packed);
      }
    }
  }
}

TEST_CASE("other ops are refused") {
  const TensorSpec m{{4, 4}, DType::f32};
  const TensorSpec in[] = {m, m};
  REQUIRE_THROWS_AS(make_product({OpKind::add, {}, in, {&m, 1}, 1}), InternalError);
  REQUIRE_THROWS_AS(product_packed_bytes({OpKind::linear_weight_grad, {}, in, {&m, 1}, 1}),
                    InternalError);
}

}  // namespace
}  // namespace dstrain
