#include "kernels/contraction.h"
#include "kernels/convolution.h"
#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/library.h"
#include "kernels/cuda/memory_bound/memory_bound.cuh"
#include "kernels/cuda/orthogonalize.cuh"
#include "kernels/cuda/products/grouped.cuh"
#include "kernels/cuda/products/products.cuh"
#include "kernels/cuda/step/finish.cuh"
#include "kernels/cuda/unfused.cuh"
#include "runtime/core/error.h"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

class Library final : public KernelLibrary {
 public:
  explicit Library(const LaunchContext& context) : context_(context) {}

  int64_t workspace_bytes(const KernelSpec& spec) const override {
    switch (family_of(spec.op)) {
      case OpFamily::product:
        return product_workspace_bytes(spec);
      case OpFamily::contraction:
        return contraction_workspace_bytes(*this, spec, 0);
      case OpFamily::convolution:
        return convolution_workspace_bytes(*this, spec);
      case OpFamily::attention:
        return attention_workspace_bytes(spec);
      case OpFamily::newton_schulz:
        return orthogonalize_workspace_bytes(spec);
      case OpFamily::memory_bound:
        return memory_bound_workspace_bytes(spec);
      case OpFamily::grouped:
      case OpFamily::decode:  // generation on a device has no keys and values of earlier tokens
      case OpFamily::none:
        break;
    }
    return 0;
  }

  // Products on this device read the plain weight.
  int64_t packed_bytes(const KernelSpec&) const override { return 0; }

  bool fuses(const KernelSpec& spec) const override {
    return family_of(spec.op) == OpFamily::product ? product_fuses(spec) : memory_bound_fuses(spec);
  }
  // Products with odd leading dimensions take slower ways through cuBLASLt.
  int64_t row_multiple() const override { return 128; }

  // Products whose rows are no multiple of it compute rows that nobody needs.
  int64_t sum_rows_part(const KernelSpec&) const override { return 128; }

  std::unique_ptr<MultiTensorKernel> make_multi_tensor(std::span<const KernelSpec> specs,
                                                       size_t& count) const override {
    return specs[0].op == OpKind::adam ? make_multi_tensor_adam(specs, count, context_) : nullptr;
  }

  std::unique_ptr<Kernel> make(const KernelSpec& spec) const override {
    std::unique_ptr<Kernel> kernel;
    switch (family_of(spec.op)) {
      case OpFamily::product:
        kernel = make_product(spec, context_);
        if (!kernel) kernel = make_unfused(spec, context_);
        break;
      case OpFamily::contraction:
        kernel = make_contraction(*this, spec, 0);
        break;
      case OpFamily::convolution:
        kernel = make_convolution(*this, spec);
        break;
      case OpFamily::grouped:
        kernel = make_grouped(spec, context_);
        break;
      case OpFamily::attention:
        kernel = make_attention(spec, context_);
        break;
      case OpFamily::newton_schulz:
        kernel = make_orthogonalize(spec, context_);
        break;
      case OpFamily::memory_bound:
        kernel = make_memory_bound(spec, context_);
        break;
      case OpFamily::decode:
      case OpFamily::none:
        break;
    }
    check(kernel != nullptr, "the {} library has no kernel for {}", kBackendName, name_of(spec.op));
    return kernel;
  }

  std::unique_ptr<FinishKernels> make_finish(const FinishRule& rule) const override {
    return make_finish_kernels(rule, context_);
  }

  std::unique_ptr<RankSum> make_rank_sum() const override {
    return DSTRAIN_BACKEND::make_rank_sum();
  }

  std::string description() const override { return kBackendName; }

 private:
  LaunchContext context_;
};

}  // namespace

std::unique_ptr<KernelLibrary> make_library(cudaStream_t stream, bool hopper) {
  return std::make_unique<Library>(LaunchContext{stream, make_product_state(), hopper});
}

}  // namespace dstrain::DSTRAIN_BACKEND
