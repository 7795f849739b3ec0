// Properties of the CPU's products alone.
#include "kernels/cpu/products/products.h"

#include <limits>

#include "runtime/core/error.h"
#include "runtime/core/isa/isa.h"
#include "runtime/core/threads/parts.h"
#include "tests/kernels/parity/products/product_operands.h"
#include "tests/support/skip.h"

namespace dstrain::products_test {
namespace {

const parity::CpuFamily kProducts{make_product, product_workspace_bytes};

TEST_CASE("an element has the same bits in operands at any alignment") {
  const Size s{130, 200, 70};
  for (const DType dtype : kDTypes) {
    const Values x = gaussian(s.rows * s.in, 1), w = gaussian(s.out * s.in, 2);
    Guarded aligned({s.rows, s.out}, dtype);
    const Guarded x0({s.rows, s.in}, dtype, x), w0({s.out, s.in}, dtype, w);
    parity::run_kernel(kProducts, call_of(OpKind::linear, 2), {&x0, &w0}, {&aligned});
    for (const int64_t offset : {1, 7, 16}) {
      Guarded shifted({s.rows, s.out}, dtype, offset);
      const Guarded x1({s.rows, s.in}, dtype, x, offset), w1({s.out, s.in}, dtype, w, offset);
      parity::run_kernel(kProducts, call_of(OpKind::linear, 2), {&x1, &w1}, {&shifted});
      parity::require_same_bits(describe("linear", dtype, s), aligned, shifted);
    }
  }
}

TEST_CASE(
    "weight gradients of whole parts of the rows, added in order, have the bits of the whole") {
  for (const DType dtype : kDTypes)
    for (const Size& s : {Size{1000, 20, 33}, {4500, 20, 33}, {9000, 33, 17}, {100, 8, 8}}) {
      const Values d_y = gaussian(s.rows * s.out, 1), x = gaussian(s.rows * s.in, 2);
      const Guarded all_d_y({s.rows, s.out}, dtype, d_y), all_x({s.rows, s.in}, dtype, x);
      Guarded whole({s.out, s.in}, DType::f32);
      parity::Call call = call_of(OpKind::linear_weight_grad, 2);
      parity::run_kernel(kProducts, call, {&all_d_y, &all_x}, {&whole});
      const std::vector<TensorSpec> in{all_d_y.spec(), all_x.spec()};
      const TensorSpec out = whole.spec();
      const int64_t part = product_sum_rows_part({call.op, {}, in, {&out, 1}, 2});
      CHECK(part >= std::min<int64_t>(s.rows, 192));
      Guarded sum({s.out, s.in}, DType::f32);
      for (int64_t first = 0; first < s.rows; first += part) {
        const int64_t end = std::min(s.rows, first + part);
        const Guarded piece_d_y({end - first, s.out}, dtype,
                                {d_y.begin() + first * s.out, d_y.begin() + end * s.out});
        const Guarded piece_x({end - first, s.in}, dtype,
                              {x.begin() + first * s.in, x.begin() + end * s.in});
        call.accumulate = first > 0;
        parity::run_kernel(kProducts, call, {&piece_d_y, &piece_x}, {&sum});
      }
      parity::require_same_bits(describe("linear_weight_grad", dtype, s), sum, whole);
    }
}

TEST_CASE("a product leaves the process's thread count alone") {
  const int before = thread_count();
  const Size s{40, 40, 40};
  for (const DType dtype : kDTypes) {
    const Operands o(s, dtype, integers);
    Guarded y({s.rows, s.out}, dtype);
    parity::run_kernel(kProducts, call_of(OpKind::linear, before + 1), {&o.x, &o.w}, {&y});
    REQUIRE(thread_count() == before);
  }
}

TEST_CASE("a packed weight gives the same bits as a plain one") {
  for (const DType dtype : kDTypes) {
    for (const Size& s : sizes()) {
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
        parity::Call pack = call_of(OpKind::pack_weight, 2);
        pack.attrs = PackAttrs{.rows = s.rows, .for_input_grad = backward};
        parity::run_kernel(kProducts, pack, {&o.w}, {&buffer});
        parity::run_kernel(kProducts, call_of(op, 2), in, {&plain});
        in.back() = &buffer;
        parity::run_kernel(kProducts, call_of(op, 2), in, {&packed});
        parity::require_same_bits(describe("packed", dtype, s), plain, packed);
      }
    }
  }
}

// Returns whether products of `dtype` use the packed bf16 implementation.
bool own(DType dtype) {
  return dtype == DType::bf16 && max_isa() >= Isa::avx512_bf16;
}

TEST_CASE("bf16 products are our own where the processor multiplies bf16") {
  for (const DType dtype : kDTypes) {
    const TensorSpec x{{64, 64}, dtype};
    const TensorSpec in[] = {x, x};
    for (const OpKind op : {OpKind::linear, OpKind::linear_input_grad}) {
      REQUIRE((product_packed_bytes({op, {}, in, {&x, 1}, 1}) > 0) == own(dtype));
    }
  }
}

TEST_CASE("products have the same bits with any number of threads and rows") {
  const DType dtype = GENERATE(DType::f32, DType::bf16, DType::f16);
  std::vector<Size> all = sizes();
  for (const Size& s : {Size{13, 385, 31}, Size{770, 65, 33}, Size{25, 769, 1537},
                        Size{61, 400, 97}, Size{513, 129, 3}, Size{1, 1153, 700}})
    all.push_back(s);
  for (const Size& s : all) {
    const Operands o(s, dtype, gaussian);
    Guarded y({s.rows, s.out}, dtype), d_x({s.rows, s.in}, dtype);
    Guarded d_w({s.out, s.in}, DType::f32);
    const auto run = [&](int threads, Guarded& to_y, Guarded& to_d_x, Guarded& to_d_w) {
      parity::run_kernel(kProducts, relu_call(threads), {&o.x, &o.w, &o.bias}, {&to_y});
      parity::run_kernel(kProducts, call_of(OpKind::linear_input_grad, threads), {&o.d_y, &o.w},
                         {&to_d_x});
      parity::run_kernel(kProducts, call_of(OpKind::linear_weight_grad, threads), {&o.d_y, &o.x},
                         {&to_d_w});
    };
    run(1, y, d_x, d_w);
    for (const int threads : {2, 3, 4, 7}) {
      Guarded again({s.rows, s.out}, dtype), d_x_again({s.rows, s.in}, dtype);
      Guarded d_w_again({s.out, s.in}, DType::f32);
      run(threads, again, d_x_again, d_w_again);
      parity::require_same_bits(describe("linear", dtype, s), y, again);
      parity::require_same_bits(describe("input grad", dtype, s), d_x, d_x_again);
      parity::require_same_bits(describe("weight grad", dtype, s), d_w, d_w_again);
    }
    Values first_row = o.x.values();
    first_row.resize(static_cast<size_t>(s.in));
    const Guarded x({1, s.in}, dtype, first_row);
    Guarded alone({1, s.out}, dtype);
    parity::run_kernel(kProducts, relu_call(), {&x, &o.w, &o.bias}, {&alone});
    REQUIRE(alone.raw() == y.raw().substr(0, alone.raw().size()));
  }
}

TEST_CASE("what is no number stays none through a bf16 product, and nothing else is touched") {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Size s{33, 40, 35};
  Values x(static_cast<size_t>(s.rows * s.in), 1), w(static_cast<size_t>(s.out * s.in), 1);
  x[static_cast<size_t>(32 * s.in + 39)] = std::numeric_limits<double>::quiet_NaN();
  x[static_cast<size_t>(7 * s.in)] = kInfinity;
  const Guarded in0({s.rows, s.in}, DType::bf16, x), in1({s.out, s.in}, DType::bf16, w);
  Guarded y({s.rows, s.out}, DType::bf16);
  parity::run_kernel(kProducts, call_of(OpKind::linear), {&in0, &in1}, {&y});
  parity::require_close("not numbers", y.values(), multiply(s, x, w), {});
}

TEST_CASE("every bf16 pattern passes through the epilogue of a product of our own") {
  SKIP_UNLESS(own(DType::bf16), "this processor's bf16 products are no panels of our own");
  constexpr int64_t kPatterns = 65536;
  const Guarded x({1, 1}, DType::bf16, Values{0}),
      w({kPatterns, 1}, DType::bf16, Values(kPatterns));
  Guarded bias({kPatterns}, DType::bf16), y({1, kPatterns}, DType::bf16);
  Guarded expected({1, kPatterns}, DType::bf16);
  for (int64_t i = 0; i < kPatterns; ++i) {
    bias.tensor().as<uint16_t>()[i] = static_cast<uint16_t>(i);
    const float sum = 0.0f + to_float(bias.tensor().as<bf16>()[i]);
    expected.tensor().as<bf16>()[i] = to_bf16(sum);
  }
  parity::run_kernel(kProducts, call_of(OpKind::linear), {&x, &w, &bias}, {&y});
  parity::require_same_bits("bias", y, expected);
}

TEST_CASE("other ops are refused") {
  const TensorSpec m{{4, 4}, DType::f32};
  const TensorSpec in[] = {m, m};
  REQUIRE_THROWS_AS(make_product({OpKind::add, {}, in, {&m, 1}, 1}), InternalError);
  REQUIRE_THROWS_AS(product_packed_bytes({OpKind::linear_weight_grad, {}, in, {&m, 1}, 1}),
                    InternalError);
}

}  // namespace
}  // namespace dstrain::products_test
