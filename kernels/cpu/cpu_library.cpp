#include "kernels/cpu/cpu_library.h"

#include "kernels/contraction.h"
#include "kernels/convolution.h"
#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/convolutions/convolutions.h"
#include "kernels/cpu/decode/decode.h"
#include "kernels/cpu/grouped/grouped.h"
#include "kernels/cpu/memory_bound/memory_bound.h"
#include "kernels/cpu/orthogonalize.h"
#include "kernels/cpu/products/products.h"
#include "runtime/core/error.h"
#include "runtime/core/isa/isa.h"
#include "runtime/ir/op.h"

namespace dstrain {
namespace {

class CpuLibrary final : public KernelLibrary {
 public:
  int64_t workspace_bytes(const KernelSpec& spec) const override {
    switch (family_of(spec.op)) {
      case OpFamily::product:
        return product_workspace_bytes(spec);
      case OpFamily::contraction:
        return contraction_workspace_bytes(*this, spec, spec.threads);
      case OpFamily::convolution:
        return computes_directly(spec) ? direct_convolution_workspace_bytes(spec)
                                       : convolution_workspace_bytes(*this, spec);
      case OpFamily::grouped:
        return grouped_workspace_bytes(spec);
      case OpFamily::attention:
        return attention_workspace_bytes(spec);
      case OpFamily::decode:
        return decode_workspace_bytes(spec);
      case OpFamily::newton_schulz:
        return orthogonalize_workspace_bytes(spec);
      case OpFamily::memory_bound:
        return memory_bound_workspace_bytes(spec);
      case OpFamily::none:
        break;
    }
    return 0;
  }

  int64_t packed_bytes(const KernelSpec& spec) const override {
    return family_of(spec.op) == OpFamily::product ? product_packed_bytes(spec) : 0;
  }

  int64_t sum_rows_part(const KernelSpec& spec) const override {
    return product_sum_rows_part(spec);
  }

  std::unique_ptr<Kernel> make(const KernelSpec& spec) const override {
    std::unique_ptr<Kernel> kernel;
    switch (family_of(spec.op)) {
      case OpFamily::product:
        kernel = make_product(spec);
        break;
      case OpFamily::contraction:
        kernel = make_contraction(*this, spec, spec.threads);
        break;
      case OpFamily::convolution:
        kernel =
            computes_directly(spec) ? make_direct_convolution(spec) : make_convolution(*this, spec);
        break;
      case OpFamily::grouped:
        kernel = make_grouped(spec);
        break;
      case OpFamily::attention:
        kernel = make_attention(spec);
        break;
      case OpFamily::decode:
        kernel = make_decode(spec);
        break;
      case OpFamily::newton_schulz:
        kernel = make_orthogonalize(spec);
        break;
      case OpFamily::memory_bound:
        kernel = make_memory_bound(spec);
        break;
      case OpFamily::none:
        break;
    }
    check(kernel != nullptr, "the CPU library has no kernel for {}", name_of(spec.op));
    return kernel;
  }

  std::string description() const override {
    return fmt::format("cpu with {}", name_of(max_isa()));
  }
};

}  // namespace

std::unique_ptr<KernelLibrary> make_cpu_library() {
  return std::make_unique<CpuLibrary>();
}

}  // namespace dstrain
