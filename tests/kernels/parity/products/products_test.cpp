#include "tests/kernels/parity/products/product_operands.h"

namespace dstrain::products_test {
namespace {

TEST_CASE("products of small integers are exact in every dtype, at odd sizes and offsets") {
  for (const DType dtype : kDTypes) {
    for (const Size& s : sizes()) {
      const Operands o(s, dtype, integers);
      const Values bias = o.bias.values();
      const Values sums = multiply(s, o.x.values(), o.w.values());
      for (const bool relu : {false, true}) {
        for (const bool biased : {false, true}) {
          Guarded y({s.rows, s.out}, dtype, Operands::start(s));
          parity::run_kernel(parity::test_device(), relu ? relu_call() : call_of(OpKind::linear),
                             {&o.x, &o.w, biased ? &o.bias : nullptr, nullptr}, {&y});
          const Values expected = finished(s, sums, biased ? &bias : nullptr, relu);
          parity::require_close(describe("linear", dtype, s), y.values(), rounded(expected, dtype),
                                {});
        }
      }
      Guarded d_x({s.rows, s.in}, dtype, 3 * Operands::start(s));
      parity::run_kernel(parity::test_device(), call_of(OpKind::linear_input_grad),
                         {&o.d_y, &o.w, nullptr}, {&d_x});
      parity::require_close(describe("input grad", dtype, s), d_x.values(),
                            rounded(input_grad(s, o.d_y.values(), o.w.values()), dtype), {});

      Guarded d_w({s.out, s.in}, DType::f32, Operands::start(s));
      parity::run_kernel(parity::test_device(), call_of(OpKind::linear_weight_grad), {&o.d_y, &o.x},
                         {&d_w});
      const Values zero(static_cast<size_t>(s.out * s.in));
      const Values once = weight_grad(s, o.d_y.values(), o.x.values(), zero);
      parity::require_close(describe("weight grad", dtype, s), d_w.values(), once, {});

      parity::Call add = call_of(OpKind::linear_weight_grad);
      add.accumulate = true;
      parity::run_kernel(parity::test_device(), add, {&o.d_y, &o.x}, {&d_w});
      parity::require_close(describe("added weight grad", dtype, s), d_w.values(),
                            weight_grad(s, o.d_y.values(), o.x.values(), once), {});
    }
  }
}

TEST_CASE("products of any numbers are within one rounding of the double-precision result") {
  for (const DType dtype : kDTypes) {
    for (const Size& s : {Size{33, 65, 129}, Size{100, 256, 65}, Size{120, 40, 300}}) {
      const Operands o(s, dtype, gaussian);
      const Values bias = o.bias.values();
      Guarded y({s.rows, s.out}, dtype);
      parity::run_kernel(parity::test_device(), relu_call(), {&o.x, &o.w, &o.bias}, {&y});
      parity::require_close(describe("linear", dtype, s), y.values(),
                            finished(s, multiply(s, o.x.values(), o.w.values()), &bias, true),
                            tolerance(dtype, s.in));
      Guarded d_x({s.rows, s.in}, dtype);
      parity::run_kernel(parity::test_device(), call_of(OpKind::linear_input_grad), {&o.d_y, &o.w},
                         {&d_x});
      parity::require_close(describe("input grad", dtype, s), d_x.values(),
                            input_grad(s, o.d_y.values(), o.w.values()), tolerance(dtype, s.out));
      const Values start = gaussian(s.out * s.in, 9);
      Guarded d_w({s.out, s.in}, DType::f32, start);
      parity::Call add = call_of(OpKind::linear_weight_grad);
      add.accumulate = true;
      parity::run_kernel(parity::test_device(), add, {&o.d_y, &o.x}, {&d_w});
      parity::require_close(describe("weight grad", dtype, s), d_w.values(),
                            weight_grad(s, o.d_y.values(), o.x.values(), start),
                            tolerance(DType::f32, s.rows));
    }
  }
}

TEST_CASE("a product gives the same bits each time it runs") {
  const Size s = sizes().back();
  for (const DType dtype : kDTypes) {
    const Operands o(s, dtype, gaussian);
    for (const int threads : parity::device_limits().threads) {
      Guarded first({s.rows, s.out}, dtype), again({s.rows, s.out}, dtype);
      for (Guarded* y : {&first, &again})
        parity::run_kernel(parity::test_device(), relu_call(threads), {&o.x, &o.w, &o.bias}, {y});
      parity::require_same_bits(describe("linear", dtype, s), first, again);
      Guarded d_w({s.out, s.in}, DType::f32), d_w_again({s.out, s.in}, DType::f32);
      for (Guarded* d : {&d_w, &d_w_again})
        parity::run_kernel(parity::test_device(), call_of(OpKind::linear_weight_grad, threads),
                           {&o.d_y, &o.x}, {d});
      parity::require_same_bits(describe("weight grad", dtype, s), d_w, d_w_again);
    }
  }
}

}  // namespace
}  // namespace dstrain::products_test
