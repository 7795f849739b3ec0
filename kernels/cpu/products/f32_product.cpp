#include "kernels/cpu/products/f32_product.h"

#include "kernels/cpu/products/convert.h"
#include "kernels/cpu/products/sgemm.h"
#include "kernels/operands.h"

namespace dstrain {
namespace {

class F32Product final : public Kernel {
 public:
  explicit F32Product(const Product& product) : product_(product) {}

  void run(const KernelCall& call) const override {
    const Product& p = product_;
    SgemmCall gemm;
    gemm.m = p.m();
    gemm.n = p.n();
    gemm.k = p.k();
    gemm.a = call.in[0].as<const float>();
    gemm.b = call.in[1].as<const float>();
    gemm.c = call.out[0].as<float>();
    gemm.a_transposed = p.op == OpKind::linear_weight_grad;
    gemm.b_transposed = p.op == OpKind::linear;
    gemm.a_stride = p.op == OpKind::linear ? p.in_features : p.out_features;
    gemm.b_stride = p.in_features;
    gemm.c_stride = p.n();
    gemm.accumulate = p.op == OpKind::linear_weight_grad && call.accumulate;
    gemm.threads = p.threads;
    gemm.workspace_floats = sgemm_workspace_floats(gemm.m, gemm.n, gemm.k, gemm.threads);
    gemm.workspace = workspace<float>(call, gemm.workspace_floats);
    sgemm(gemm);
    if (p.bias || p.relu) {
      const void* bias = p.bias ? call.in[2].data : nullptr;
      finish(gemm.c, gemm.c_stride, gemm.m, gemm.n, bias, p.relu,
             {gemm.c, DType::f32, gemm.c_stride}, p.threads);
    }
  }

 private:
  Product product_;
};

}  // namespace

int64_t f32_product_workspace_bytes(const Product& p) {
  return sgemm_workspace_floats(p.m(), p.n(), p.k(), p.threads) * size_of(DType::f32);
}

std::unique_ptr<Kernel> make_f32_product(const Product& product) {
  return std::make_unique<F32Product>(product);
}

void run_f32_product(const Product& product, const KernelCall& call) {
  F32Product(product).run(call);
}

}  // namespace dstrain
