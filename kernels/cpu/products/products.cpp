#include "kernels/cpu/products/products.h"

#include "kernels/cpu/memory_bound/memory_bound.h"
#include "kernels/cpu/products/f32_product.h"
#include "kernels/cpu/products/panel_product.h"
#include "kernels/cpu/products/sgemm.h"
#include "kernels/cpu/products/wide_product.h"
#include "runtime/core/error.h"
#include "runtime/core/isa/isa.h"

namespace dstrain {
namespace {

enum class Implementation { f32, panels, wide };

Implementation implementation_of(const Product& p) {
  if (p.dtype == DType::f32) return Implementation::f32;
  if (p.dtype == DType::bf16 && max_isa() >= Isa::avx512_bf16) return Implementation::panels;
  return Implementation::wide;
}

}  // namespace

int64_t product_workspace_bytes(const KernelSpec& spec) {
  return spec.op == OpKind::pack_weight ? 0 : product_workspace_bytes(product_of(spec));
}

int64_t product_workspace_bytes(const Product& p) {
  switch (implementation_of(p)) {
    case Implementation::f32:
      return f32_product_workspace_bytes(p);
    case Implementation::panels:
      return panel_product_workspace_bytes(p);
    case Implementation::wide:
      return wide_product_workspace_bytes(p);
  }
  return 0;
}

void run_product(const Product& p, const KernelCall& call) {
  switch (implementation_of(p)) {
    case Implementation::f32:
      return run_f32_product(p, call);
    case Implementation::panels:
      return run_panel_product(p, call);
    case Implementation::wide:
      return run_wide_product(p, call);
  }
}

int64_t product_packed_bytes(const KernelSpec& spec) {
  const Product p = product_of(spec);
  check(p.op != OpKind::linear_weight_grad, "{} reads no weight", name_of(p.op));
  return implementation_of(p) == Implementation::panels ? panel_product_packed_bytes(p) : 0;
}

int64_t product_sum_rows_part(const KernelSpec& spec) {
  const Product p = product_of(spec);
  check(p.op == OpKind::linear_weight_grad, "{} has no sums over rows", name_of(p.op));
  switch (implementation_of(p)) {
    case Implementation::f32:
      return sgemm_part_length(p.rows);
    case Implementation::panels:
      return panel_product_sum_rows_part(p);
    case Implementation::wide:
      return wide_product_sum_rows_part();
  }
  return 0;
}

std::unique_ptr<Kernel> make_product(const KernelSpec& spec) {
  if (spec.op == OpKind::pack_weight) {
    const Product p = product_of_pack(spec);
    check(implementation_of(p) == Implementation::panels,
          "pack_weight: {} of {} reads the plain weight", name_of(p.op), name_of(p.dtype));
    return make_panel_pack(p);
  }
  const Product p = product_of(spec);
  check(!p.gelu && !p.residual, "{}: gelu and residuals are ops of their own on a processor",
        name_of(p.op));
  switch (implementation_of(p)) {
    case Implementation::f32:
      return make_f32_product(p);
    case Implementation::panels:
      return make_panel_product(p);
    case Implementation::wide:
      return make_wide_product(p);
  }
  return nullptr;
}

}  // namespace dstrain
