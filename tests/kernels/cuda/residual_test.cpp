// Products that add a residual, on the emulated device and GPUs: the sum is rounded once.
#include "tests/kernels/parity/products/product_operands.h"

namespace dstrain::products_test {
namespace {

TEST_CASE("a linear with a residual adds it before the result is rounded") {
  for (const DType dtype : kDTypes)
    for (const Size& s : {Size{33, 40, 64}, {7, 24, 8}, {64, 64, 136}, {5, 33, 17}})
      for (const bool biased : {false, true}) {
        const Operands o(s, dtype, gaussian);
        const Guarded residual({s.rows, s.out}, dtype,
                               parity::normal_values(s.rows * s.out, 7, 30));
        const Guarded* const bias = biased ? &o.bias : nullptr;
        Guarded y({s.rows, s.out}, dtype), product({s.rows, s.out}, dtype);
        const parity::Call call = call_of(OpKind::linear);
        parity::run_kernel(parity::test_device(), call, {&o.x, &o.w, bias, nullptr, &residual},
                           {&y});
        parity::run_kernel(parity::test_device(), call, {&o.x, &o.w, bias}, {&product});
        const Values bias_values = o.bias.values(), add = residual.values();
        Values expected = finished(s, multiply(s, o.x.values(), o.w.values()),
                                   biased ? &bias_values : nullptr, false);
        for (size_t i = 0; i < expected.size(); ++i) expected[i] += add[i];
        parity::require_close(describe("residual", dtype, s), y.values(), expected,
                              tolerance(dtype, s.in));
        if (dtype == DType::f32) continue;
        // In 16 bits the two ops round twice: the product by itself, then the sum.
        Values twice = product.values();
        for (size_t i = 0; i < twice.size(); ++i) twice[i] += add[i];
        const double once = parity::relative_norm_error(y.values(), expected);
        CHECK(once <= parity::relative_norm_error(rounded(twice, dtype), expected) * 1.0001);
      }
}

}  // namespace
}  // namespace dstrain::products_test
