#include "kernels/cuda/memory_bound/memory_bound.cuh"

namespace dstrain::DSTRAIN_BACKEND {

int64_t memory_bound_workspace_bytes(const KernelSpec& spec) {
  switch (spec.op) {
    case OpKind::embed_token_grad:
      return embed_token_grad_workspace(spec);
    case OpKind::layer_norm_weight_grad:
      return layer_norm_weight_grad_workspace(spec);
    case OpKind::cross_entropy:
      return cross_entropy_workspace(spec);
    case OpKind::sum_rows:
      return sum_rows_workspace(spec);
    case OpKind::sum_squares:
      return sum_squares_workspace(spec);
    default:
      return 0;
  }
}

std::unique_ptr<Kernel> make_memory_bound(const KernelSpec& spec, const LaunchContext& context) {
  switch (spec.op) {
    case OpKind::embed:
      return make_embed(spec, context);
    case OpKind::embed_token_grad:
      return make_embed_token_grad(spec, context);
    case OpKind::embed_position_grad:
      return make_embed_position_grad(spec, context);
    case OpKind::layer_norm:
      return make_layer_norm(spec, context);
    case OpKind::layer_norm_input_grad:
      return make_layer_norm_input_grad(spec, context);
    case OpKind::layer_norm_weight_grad:
      return make_layer_norm_weight_grad(spec, context);
    case OpKind::activation:
      return make_activation(spec, context);
    case OpKind::activation_grad:
      return make_activation_grad(spec, context);
    case OpKind::add:
      return make_add(spec, context);
    case OpKind::add_dropout:
      return make_add_dropout(spec, context);
    case OpKind::dropout_grad:
      return make_dropout_grad(spec, context);
    case OpKind::cross_entropy:
      return make_cross_entropy(spec, context);
    case OpKind::sum_rows:
      return make_sum_rows(spec, context);
    case OpKind::cast:
      return make_cast(spec, context);
    case OpKind::accumulate:
      return make_accumulate(spec, context);
    case OpKind::round_wire:
      return make_round_wire(spec, context);
    case OpKind::sum_squares:
      return make_sum_squares(spec, context);
    case OpKind::adam:
      return make_adam(spec, context);
    case OpKind::sgd:
      return make_sgd(spec, context);
    default:
      return nullptr;
  }
}

}  // namespace dstrain::DSTRAIN_BACKEND
