#include "kernels/cuda/memory_bound/memory_bound.cuh"
#include "kernels/op_table.h"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

using Maker = OpMaker<const LaunchContext&>;

constexpr Maker kOps[] = {
    {OpKind::embed, make_embed},
    {OpKind::embed_token_grad, make_embed_token_grad, embed_token_grad_workspace},
    {OpKind::embed_position_grad, make_embed_position_grad, embed_position_grad_workspace},
    {OpKind::layer_norm, make_layer_norm},
    {OpKind::layer_norm_input_grad, make_layer_norm_input_grad},
    {OpKind::layer_norm_weight_grad, make_layer_norm_weight_grad, layer_norm_weight_grad_workspace},
    {OpKind::layer_norm_grad, make_layer_norm_grad, layer_norm_grad_workspace},
    {OpKind::add_layer_norm, make_add_layer_norm},
    {OpKind::rms_norm, make_rms_norm},
    {OpKind::rms_norm_input_grad, make_rms_norm_input_grad},
    {OpKind::rms_norm_weight_grad, make_rms_norm_weight_grad, rms_norm_weight_grad_workspace},
    {OpKind::rotary, make_rotary},
    {OpKind::rotary_grad, make_rotary},
    {OpKind::gated, make_gated},
    {OpKind::gated_grad, make_gated_grad},
    {OpKind::activation, make_activation},
    {OpKind::activation_grad, make_activation_grad},
    {OpKind::add, make_add},
    {OpKind::scale, make_scale},
    {OpKind::add_dropout, make_add_dropout},
    {OpKind::dropout_grad, make_dropout_grad},
    {OpKind::cross_entropy, make_cross_entropy, cross_entropy_workspace},
    {OpKind::sum_rows, make_sum_rows, sum_rows_workspace},
    {OpKind::cast, make_cast},
    {OpKind::accumulate, make_accumulate},
    {OpKind::round_wire, make_round_wire},
    {OpKind::sum_squares, make_sum_squares, sum_squares_workspace},
    {OpKind::adam, make_adam},
    {OpKind::adagrad, make_adagrad},
    {OpKind::lion, make_lion},
    {OpKind::lamb_direction, make_lamb_direction},
    {OpKind::lamb, make_lamb},
    {OpKind::sgd, make_sgd},
    {OpKind::muon_momentum, make_muon_momentum},
    {OpKind::muon, make_muon},
    {OpKind::unpack_weight, make_unpack_weight},
    {OpKind::quantize, make_quantize},
    {OpKind::dequantize, make_dequantize},
    {OpKind::quantize_int4, make_quantize_int4},
    {OpKind::requantize_int4, make_requantize_int4},
    {OpKind::sum_int4, make_sum_int4},
    {OpKind::gram_schmidt, make_gram_schmidt},
    {OpKind::random_factor, make_random_factor},
    {OpKind::project_rows, make_project_rows},
    {OpKind::project_columns, make_project_columns, project_columns_workspace},
    {OpKind::expand_factors, make_expand_factors},
    {OpKind::add_error, make_add_error},
    {OpKind::commit_state, make_commit_state},
    {OpKind::update_buffer, make_update_buffer},
    {OpKind::quantize_signs, make_quantize_signs},
    {OpKind::requantize_signs, make_requantize_signs},
    {OpKind::dequantize_signs, make_dequantize_signs},
    {OpKind::positive_bits, make_positive_bits},
    {OpKind::local_momentum, make_local_momentum},
    {OpKind::frozen_adam, make_frozen_adam},
    {OpKind::lamb_average, make_lamb_average},
    {OpKind::momentum_scale, make_momentum_scale},
    {OpKind::scaled_momentum, make_scaled_momentum},
    {OpKind::frozen_lamb_direction, make_frozen_lamb_direction},
    {OpKind::lamb_factor, make_lamb_factor},
    {OpKind::frozen_lamb, make_frozen_lamb},
    {OpKind::local_step, make_local_step},
    {OpKind::local_weights, make_local_weights},
    {OpKind::end_local_steps, make_end_local_steps},
    {OpKind::error_squares, make_error_squares, error_squares_workspace},
};

}  // namespace

int64_t memory_bound_workspace_bytes(const KernelSpec& spec) {
  const Maker* maker = find_maker(kOps, spec.op);
  return maker && maker->workspace ? maker->workspace(spec) : 0;
}

bool memory_bound_fuses(const KernelSpec& spec) {
  return (spec.op == OpKind::layer_norm_grad && layer_norm_grad_fuses(spec)) ||
         (spec.op == OpKind::add_layer_norm && add_layer_norm_fuses(spec));
}

std::unique_ptr<Kernel> make_memory_bound(const KernelSpec& spec, const LaunchContext& context) {
  const Maker* maker = find_maker(kOps, spec.op);
  return maker ? maker->make(spec, context) : nullptr;
}

}  // namespace dstrain::DSTRAIN_BACKEND
