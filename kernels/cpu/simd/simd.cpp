#include "kernels/cpu/simd/simd.h"

#include "kernels/cpu/simd/kernels.h"
#include "kernels/joined.h"
#include "kernels/op_table.h"

namespace dstrain {
namespace {

int64_t joined_simd_workspace(const KernelSpec& spec) {
  return joined_workspace(spec, simd_workspace_bytes);
}
std::unique_ptr<Kernel> make_joined_simd(const KernelSpec& spec) {
  return make_joined(spec, make_simd);
}

constexpr OpMaker<> kOps[] = {
    {OpKind::embed, simd::make_embed},
    {OpKind::embed_token_grad, simd::make_embed_token_grad},
    {OpKind::embed_position_grad, simd::make_embed_position_grad},
    {OpKind::layer_norm, simd::make_layer_norm},
    {OpKind::layer_norm_input_grad, simd::make_layer_norm_input_grad},
    {OpKind::layer_norm_weight_grad, simd::make_layer_norm_weight_grad,
     simd::layer_norm_weight_grad_workspace},
    {OpKind::layer_norm_grad, make_joined_simd, joined_simd_workspace},
    {OpKind::add_layer_norm, make_joined_simd},
    {OpKind::rms_norm, simd::make_rms_norm},
    {OpKind::rms_norm_input_grad, simd::make_rms_norm_input_grad},
    {OpKind::rms_norm_weight_grad, simd::make_rms_norm_weight_grad,
     simd::rms_norm_weight_grad_workspace},
    {OpKind::rotary, simd::make_rotary},
    {OpKind::rotary_grad, simd::make_rotary},
    {OpKind::gated, simd::make_gated},
    {OpKind::gated_grad, simd::make_gated_grad},
    {OpKind::activation, simd::make_activation},
    {OpKind::activation_grad, simd::make_activation_grad},
    {OpKind::add, simd::make_add},
    {OpKind::scale, simd::make_scale},
    {OpKind::add_dropout, simd::make_add_dropout},
    {OpKind::dropout_grad, simd::make_dropout_grad},
    {OpKind::cross_entropy, simd::make_cross_entropy, simd::cross_entropy_workspace},
    {OpKind::sum_rows, simd::make_sum_rows, simd::sum_rows_workspace},
    {OpKind::cast, simd::make_cast},
    {OpKind::accumulate, simd::make_accumulate},
    {OpKind::round_wire, simd::make_round_wire},
    {OpKind::sum_squares, simd::make_sum_squares, simd::sum_squares_workspace},
    {OpKind::adam, simd::make_adam},
    {OpKind::adagrad, simd::make_adagrad},
    {OpKind::lion, simd::make_lion},
    {OpKind::lamb_direction, simd::make_lamb_direction},
    {OpKind::lamb, simd::make_lamb},
    {OpKind::sgd, simd::make_sgd},
    {OpKind::muon_momentum, simd::make_muon_momentum},
    {OpKind::muon, simd::make_muon},
    {OpKind::unpack_weight, simd::make_unpack_weight},
    {OpKind::quantize, simd::make_quantize},
    {OpKind::dequantize, simd::make_dequantize},
    {OpKind::quantize_int4, simd::make_quantize_int4},
    {OpKind::requantize_int4, simd::make_requantize_int4},
    {OpKind::sum_int4, simd::make_sum_int4},
    {OpKind::gram_schmidt, simd::make_gram_schmidt},
    {OpKind::random_factor, simd::make_random_factor},
    {OpKind::project_rows, simd::make_project_rows},
    {OpKind::project_columns, simd::make_project_columns},
    {OpKind::expand_factors, simd::make_expand_factors},
    {OpKind::add_error, simd::make_add_error},
    {OpKind::commit_state, simd::make_commit_state},
    {OpKind::update_buffer, simd::make_update_buffer},
    {OpKind::quantize_signs, simd::make_quantize_signs},
    {OpKind::requantize_signs, simd::make_requantize_signs},
    {OpKind::dequantize_signs, simd::make_dequantize_signs},
    {OpKind::positive_bits, simd::make_positive_bits},
    {OpKind::local_momentum, simd::make_local_momentum},
    {OpKind::frozen_adam, simd::make_frozen_adam},
    {OpKind::lamb_average, simd::make_lamb_average},
    {OpKind::momentum_scale, simd::make_momentum_scale},
    {OpKind::scaled_momentum, simd::make_scaled_momentum},
    {OpKind::frozen_lamb_direction, simd::make_frozen_lamb_direction},
    {OpKind::lamb_factor, simd::make_lamb_factor},
    {OpKind::frozen_lamb, simd::make_frozen_lamb},
    {OpKind::local_step, simd::make_local_step},
    {OpKind::local_weights, simd::make_local_weights},
    {OpKind::end_local_steps, simd::make_end_local_steps},
    {OpKind::error_squares, simd::make_error_squares, simd::error_squares_workspace},
};

}  // namespace

int64_t simd_workspace_bytes(const KernelSpec& spec) {
  const OpMaker<>* maker = find_maker(kOps, spec.op);
  return maker && maker->workspace ? maker->workspace(spec) : 0;
}

std::unique_ptr<Kernel> make_simd(const KernelSpec& spec) {
  const OpMaker<>* maker = find_maker(kOps, spec.op);
  return maker ? maker->make(spec) : nullptr;
}

}  // namespace dstrain
