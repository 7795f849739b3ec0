#include <array>

#include "kernels/cuda/memory_bound/memory_bound.cuh"
#include "kernels/cuda/products/products.cuh"
#include "kernels/cuda/unfused.cuh"
#include "runtime/ir/product.h"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

class Unfused final : public Kernel {
 public:
  Unfused(const Product& product, std::unique_ptr<Kernel> plain, std::unique_ptr<Kernel> gelu)
      : product_(product), plain_(std::move(plain)), gelu_(std::move(gelu)) {}

  void run(const KernelCall& call) const override {
    const bool forward = product_.op == OpKind::linear;
    const Tensor result = call.out[0];
    const Tensor between = forward && product_.pre ? call.out[kPreOutput] : result;
    KernelCall one = call;
    one.out = {&between, 1};
    plain_->run(one);
    const std::array<Tensor, 2> in{between, forward ? Tensor{} : call.in[kPreInput]};
    one.in = {in.data(), forward ? 1u : 2u};
    one.out = {&result, 1};
    gelu_->run(one);
  }

 private:
  const Product product_;
  const std::unique_ptr<Kernel> plain_, gelu_;
};

}  // namespace

std::unique_ptr<Kernel> make_unfused(const KernelSpec& spec, const LaunchContext& context) {
  const Product product = product_of(spec);
  const bool forward = product.op == OpKind::linear;
  const TensorSpec result = spec.out[0];
  const std::array<TensorSpec, 2> in{result, result};
  KernelSpec plain = spec;
  plain.attrs = {};
  plain.out = spec.out.first(1);
  return std::make_unique<Unfused>(
      product, make_product(plain, context),
      make_memory_bound({.op = forward ? OpKind::activation : OpKind::activation_grad,
                         .attrs = ActivationAttrs{Activation::gelu},
                         .in = {in.data(), forward ? 1u : 2u},
                         .out = {&result, 1}},
                        context));
}

}  // namespace dstrain::DSTRAIN_BACKEND
