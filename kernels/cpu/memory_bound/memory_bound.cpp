#include "kernels/cpu/memory_bound/memory_bound.h"

#include "kernels/cpu/memory_bound/kernels.h"
#include "kernels/joined.h"
#include "kernels/workspace_table.h"

namespace dstrain {
namespace simd {

// The joined ops run their parts, one after the other.
std::unique_ptr<Kernel> make_layer_norm_grad(const KernelSpec& spec) {
  return make_joined(spec, make_memory_bound);
}
std::unique_ptr<Kernel> make_add_layer_norm(const KernelSpec& spec) {
  return make_joined(spec, make_memory_bound);
}

}  // namespace simd

namespace {

int64_t joined_simd_workspace(const KernelSpec& spec) {
  return joined_workspace(spec, memory_bound_workspace_bytes);
}

constexpr WorkspaceRow kWorkspaces[] = {
    {OpKind::layer_norm_weight_grad, simd::layer_norm_weight_grad_workspace},
    {OpKind::layer_norm_grad, joined_simd_workspace},
    {OpKind::rms_norm_weight_grad, simd::rms_norm_weight_grad_workspace},
    {OpKind::max_pool_grad, simd::max_pool_grad_workspace},
    {OpKind::batch_norm, simd::batch_norm_workspace},
    {OpKind::batch_norm_grad, simd::batch_norm_grad_workspace},
    {OpKind::cross_entropy, simd::cross_entropy_workspace},
    {OpKind::cross_entropy_part, simd::cross_entropy_part_workspace},
    {OpKind::reduce, simd::reduce_workspace},
    {OpKind::put, simd::put_workspace},
    {OpKind::sort, simd::sort_workspace},
    {OpKind::sum_rows, simd::sum_rows_workspace},
    {OpKind::sum_squares, simd::sum_squares_workspace},
    {OpKind::error_squares, simd::error_squares_workspace},
};

}  // namespace

int64_t memory_bound_workspace_bytes(const KernelSpec& spec) {
  return workspace_bytes(kWorkspaces, spec);
}

std::unique_ptr<Kernel> make_memory_bound(const KernelSpec& spec) {
  switch (spec.op) {
#define OP(op, family)
#define MEMORY_BOUND_OP(op) \
  case OpKind::op:          \
    return simd::make_##op(spec);
#include "runtime/ir/op_list.def"
    default:
      return nullptr;
  }
}

}  // namespace dstrain
