// Products with gelu on the emulated device and GPUs: as one fused kernel, and as the two kernels that replace it.
#include "kernels/cuda/unfused.cuh"

#include "tests/kernels/parity/products/product_operands.h"

namespace dstrain::products_test {
namespace {

constexpr DType k16Bits[] = {DType::bf16, DType::f16};
const Size kSizes[] = {{33, 40, 64}, {7, 24, 8}, {64, 64, 136}};

double sigmoid_of_twice(double x) {  // of 2u in gelu(x) = x (1 + tanh(u)) / 2
  return 1 / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double gelu(double x) {
  return x * sigmoid_of_twice(x);
}
double slope(double x) {
  const double s = sigmoid_of_twice(x);
  return s + x * s * (1 - s) * 2 * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

// The error of two roundings, as the unfused kernels round the product before gelu.
double most_error(DType dtype) {
  return dtype == DType::bf16 ? 0x1p-8 : 0x1p-11;
}

parity::Call gelu_call(OpKind op) {
  parity::Call call = call_of(op);
  call.attrs = ActivationAttrs{.activation = Activation::gelu};
  return call;
}

// Runs every product with gelu as two kernels.
class TwoKernels final : public parity::TestDevice {
 public:
  std::unique_ptr<Kernel> make(const KernelSpec& spec) const override {
    return emulated::make_unfused(spec, {.stream = &stream_});
  }
  int64_t workspace_bytes(const KernelSpec&) const override { return 0; }
  void synchronize() const override { stream_.synchronize(); }

 private:
  mutable EmulatedStream stream_;
};

void check_forward(const parity::TestDevice& on) {
  for (const DType dtype : k16Bits)
    for (const Size& s : kSizes)
      for (const bool biased : {false, true})
        for (const bool kept : {false, true}) {
          const Operands o(s, dtype, gaussian);
          const Values bias = o.bias.values();
          Guarded y({s.rows, s.out}, dtype), pre({s.rows, s.out}, dtype);
          std::vector<Guarded*> out{&y};
          if (kept) out.push_back(&pre);
          parity::run_kernel(on, gelu_call(OpKind::linear),
                             {&o.x, &o.w, biased ? &o.bias : nullptr, nullptr}, out);
          Values expected =
              finished(s, multiply(s, o.x.values(), o.w.values()), biased ? &bias : nullptr, false);
          if (kept)
            parity::require_close(describe("pre", dtype, s), pre.values(), expected,
                                  tolerance(dtype, s.in));
          for (double& v : expected) v = gelu(v);
          CHECK(parity::relative_norm_error(y.values(), expected) < most_error(dtype));
        }
}

void check_backward(const parity::TestDevice& on) {
  for (const DType dtype : k16Bits)
    for (const Size& s : kSizes) {
      const Operands o(s, dtype, gaussian);
      const Guarded pre({s.rows, s.in}, dtype, parity::normal_values(s.rows * s.in, 7, 2));
      Guarded d_x({s.rows, s.in}, dtype);
      parity::run_kernel(on, gelu_call(OpKind::linear_input_grad), {&o.d_y, &o.w, nullptr, &pre},
                         {&d_x});
      Values expected = input_grad(s, o.d_y.values(), o.w.values());
      const Values at = pre.values();
      for (size_t i = 0; i < expected.size(); ++i) expected[i] *= slope(at[i]);
      CHECK(parity::relative_norm_error(d_x.values(), expected) < most_error(dtype));
    }
}

TEST_CASE("a linear with gelu gives gelu of its result and, where asked, the result") {
  check_forward(parity::test_device());
}

TEST_CASE("an input gradient with gelu is multiplied by gelu's slope") {
  check_backward(parity::test_device());
}

TEST_CASE("two kernels stand in for a product with gelu") {
  const TwoKernels two;
  check_forward(two);
  check_backward(two);
}

}  // namespace
}  // namespace dstrain::products_test
