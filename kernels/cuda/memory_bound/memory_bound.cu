#include "kernels/cuda/memory_bound/memory_bound.cuh"
#include "kernels/workspace_table.h"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

constexpr WorkspaceRow kWorkspaces[] = {
    {OpKind::embed_token_grad, embed_token_grad_workspace},
    {OpKind::embed_position_grad, embed_position_grad_workspace},
    {OpKind::layer_norm_weight_grad, layer_norm_weight_grad_workspace},
    {OpKind::layer_norm_grad, layer_norm_grad_workspace},
    {OpKind::rms_norm_weight_grad, rms_norm_weight_grad_workspace},
    {OpKind::max_pool_grad, max_pool_grad_workspace},
    {OpKind::batch_norm, batch_norm_workspace},
    {OpKind::batch_norm_grad, batch_norm_grad_workspace},
    {OpKind::cross_entropy, cross_entropy_workspace},
    {OpKind::cross_entropy_part, cross_entropy_part_workspace},
    {OpKind::reduce, reduce_workspace},
    {OpKind::put, put_workspace},
    {OpKind::scan, scan_workspace},
    {OpKind::sort, sort_workspace},
    {OpKind::sum_rows, sum_rows_workspace},
    {OpKind::sum_squares, sum_squares_workspace},
    {OpKind::project_columns, project_columns_workspace},
    {OpKind::error_squares, error_squares_workspace},
};

}  // namespace

int64_t memory_bound_workspace_bytes(const KernelSpec& spec) {
  return workspace_bytes(kWorkspaces, spec);
}

bool memory_bound_fuses(const KernelSpec& spec) {
  return (spec.op == OpKind::layer_norm_grad && layer_norm_grad_fuses(spec)) ||
         (spec.op == OpKind::add_layer_norm && add_layer_norm_fuses(spec));
}

std::unique_ptr<Kernel> make_memory_bound(const KernelSpec& spec, const LaunchContext& context) {
  switch (spec.op) {
#define OP(op, family)
#define MEMORY_BOUND_OP(op) \
  case OpKind::op:          \
    return make_##op(spec, context);
#include "runtime/ir/op_list.def"
    default:
      return nullptr;
  }
}

}  // namespace dstrain::DSTRAIN_BACKEND
