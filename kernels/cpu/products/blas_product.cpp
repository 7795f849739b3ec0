#include "kernels/cpu/products/blas_product.h"

#include <cblas.h>

#include "kernels/cpu/products/convert.h"
#include "kernels/cpu/products/thread_scope.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

// What openblas_get_parallel() answers where the library was built on OpenMP.
constexpr int kOpenMp = 2;

class BlasProduct final : public Kernel {
 public:
  explicit BlasProduct(const Product& product) : product_(product) {}

  void run(const KernelCall& call) const override {
    const Product& p = product_;
    const ThreadScope scope(p.threads);
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

void sgemm(const SgemmCall& g) {
  cblas_sgemm(CblasRowMajor, g.a_transposed ? CblasTrans : CblasNoTrans,
              g.b_transposed ? CblasTrans : CblasNoTrans, static_cast<blasint>(g.m),
              static_cast<blasint>(g.n), static_cast<blasint>(g.k), 1.0f, g.a,
              static_cast<blasint>(g.a_stride), g.b, static_cast<blasint>(g.b_stride),
              g.accumulate ? 1.0f : 0.0f, g.c, static_cast<blasint>(g.c_stride));
}

std::unique_ptr<Kernel> make_blas_product(const Product& product) {
  check(openblas_get_parallel() == kOpenMp,
        "OpenBLAS runs threads of its own; link its openmp variant (libopenblas0-openmp)");
  return std::make_unique<BlasProduct>(product);
}

}  // namespace dstrain
