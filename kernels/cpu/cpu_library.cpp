#include "kernels/cpu/cpu_library.h"

#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/products/products.h"
#include "kernels/cpu/simd/simd.h"
#include "runtime/core/error.h"
#include "runtime/core/isa.h"
#include "runtime/ir/op.h"

namespace dstrain {
namespace {

enum class Family { product, attention, simd };

Family family_of(OpKind op) {
  switch (op) {
    case OpKind::linear:
    case OpKind::linear_input_grad:
    case OpKind::linear_weight_grad:
    case OpKind::pack_weight:
      return Family::product;
    case OpKind::attention:
    case OpKind::attention_grad:
      return Family::attention;
    default:
      return Family::simd;
  }
}

class CpuLibrary final : public KernelLibrary {
 public:
  int64_t workspace_bytes(const KernelSpec& spec) const override {
    switch (family_of(spec.op)) {
      case Family::product:
        return product_workspace_bytes(spec);
      case Family::attention:
        return attention_workspace_bytes(spec);
      case Family::simd:
        return simd_workspace_bytes(spec);
    }
    return 0;
  }

  int64_t packed_bytes(const KernelSpec& spec) const override {
    return family_of(spec.op) == Family::product ? product_packed_bytes(spec) : 0;
  }

  std::unique_ptr<Kernel> make(const KernelSpec& spec) const override {
    std::unique_ptr<Kernel> kernel;
    switch (family_of(spec.op)) {
      case Family::product:
        kernel = make_product(spec);
        break;
      case Family::attention:
        kernel = make_attention(spec);
        break;
      case Family::simd:
        kernel = make_simd(spec);
        break;
    }
    check(kernel != nullptr, "the CPU library has no body for {}", name_of(spec.op));
    return kernel;
  }

  std::string description() const override {
    return fmt::format("cpu with {}", name_of(max_isa()));
  }
};

}  // namespace

std::unique_ptr<KernelLibrary> make_cpu_library() {
  limit_highway_targets();
  return std::make_unique<CpuLibrary>();
}

}  // namespace dstrain
