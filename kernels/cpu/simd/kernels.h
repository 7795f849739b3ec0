// The functions that make this folder's kernels; simd.cpp has the table that chooses among them.
#pragma once

#include <memory>

#include "kernels/operands.h"

namespace dstrain::simd {

std::unique_ptr<Kernel> make_embed(const KernelSpec& spec);
std::unique_ptr<Kernel> make_embed_token_grad(const KernelSpec& spec);
std::unique_ptr<Kernel> make_embed_position_grad(const KernelSpec& spec);
std::unique_ptr<Kernel> make_layer_norm(const KernelSpec& spec);
std::unique_ptr<Kernel> make_layer_norm_input_grad(const KernelSpec& spec);
std::unique_ptr<Kernel> make_layer_norm_weight_grad(const KernelSpec& spec);
std::unique_ptr<Kernel> make_activation(const KernelSpec& spec);
std::unique_ptr<Kernel> make_activation_grad(const KernelSpec& spec);
std::unique_ptr<Kernel> make_add(const KernelSpec& spec);
std::unique_ptr<Kernel> make_scale(const KernelSpec& spec);
std::unique_ptr<Kernel> make_rms_norm(const KernelSpec& spec);
std::unique_ptr<Kernel> make_rms_norm_input_grad(const KernelSpec& spec);
std::unique_ptr<Kernel> make_rms_norm_weight_grad(const KernelSpec& spec);
std::unique_ptr<Kernel> make_rotary(const KernelSpec& spec);  // rotary_grad too
std::unique_ptr<Kernel> make_gated(const KernelSpec& spec);
std::unique_ptr<Kernel> make_gated_grad(const KernelSpec& spec);
std::unique_ptr<Kernel> make_add_dropout(const KernelSpec& spec);
std::unique_ptr<Kernel> make_dropout_grad(const KernelSpec& spec);
std::unique_ptr<Kernel> make_cross_entropy(const KernelSpec& spec);
std::unique_ptr<Kernel> make_sum_rows(const KernelSpec& spec);
std::unique_ptr<Kernel> make_cast(const KernelSpec& spec);
std::unique_ptr<Kernel> make_accumulate(const KernelSpec& spec);
std::unique_ptr<Kernel> make_round_wire(const KernelSpec& spec);
std::unique_ptr<Kernel> make_sum_squares(const KernelSpec& spec);
std::unique_ptr<Kernel> make_adam(const KernelSpec& spec);
std::unique_ptr<Kernel> make_adagrad(const KernelSpec& spec);
std::unique_ptr<Kernel> make_lion(const KernelSpec& spec);
std::unique_ptr<Kernel> make_lamb_direction(const KernelSpec& spec);
std::unique_ptr<Kernel> make_lamb(const KernelSpec& spec);
std::unique_ptr<Kernel> make_sgd(const KernelSpec& spec);
std::unique_ptr<Kernel> make_muon_momentum(const KernelSpec& spec);
std::unique_ptr<Kernel> make_muon(const KernelSpec& spec);
std::unique_ptr<Kernel> make_unpack_weight(const KernelSpec& spec);
std::unique_ptr<Kernel> make_quantize(const KernelSpec& spec);
std::unique_ptr<Kernel> make_dequantize(const KernelSpec& spec);
std::unique_ptr<Kernel> make_quantize_int4(const KernelSpec& spec);
std::unique_ptr<Kernel> make_requantize_int4(const KernelSpec& spec);
std::unique_ptr<Kernel> make_quantize_int4_with_errors(const KernelSpec& spec);
std::unique_ptr<Kernel> make_requantize_int4_with_errors(const KernelSpec& spec);
std::unique_ptr<Kernel> make_sum_int4(const KernelSpec& spec);
std::unique_ptr<Kernel> make_quantize_signs(const KernelSpec& spec);
std::unique_ptr<Kernel> make_requantize_signs(const KernelSpec& spec);
std::unique_ptr<Kernel> make_dequantize_signs(const KernelSpec& spec);
std::unique_ptr<Kernel> make_positive_bits(const KernelSpec& spec);
std::unique_ptr<Kernel> make_local_momentum(const KernelSpec& spec);
std::unique_ptr<Kernel> make_frozen_adam(const KernelSpec& spec);
std::unique_ptr<Kernel> make_lamb_average(const KernelSpec& spec);
std::unique_ptr<Kernel> make_momentum_scale(const KernelSpec& spec);
std::unique_ptr<Kernel> make_scaled_momentum(const KernelSpec& spec);
std::unique_ptr<Kernel> make_frozen_lamb_direction(const KernelSpec& spec);
std::unique_ptr<Kernel> make_lamb_factor(const KernelSpec& spec);
std::unique_ptr<Kernel> make_frozen_lamb(const KernelSpec& spec);
std::unique_ptr<Kernel> make_local_step(const KernelSpec& spec);
std::unique_ptr<Kernel> make_local_weights(const KernelSpec& spec);
std::unique_ptr<Kernel> make_end_local_steps(const KernelSpec& spec);
std::unique_ptr<Kernel> make_error_squares(const KernelSpec& spec);
std::unique_ptr<Kernel> make_gram_schmidt(const KernelSpec& spec);
std::unique_ptr<Kernel> make_random_factor(const KernelSpec& spec);
std::unique_ptr<Kernel> make_project_rows(const KernelSpec& spec);
std::unique_ptr<Kernel> make_project_columns(const KernelSpec& spec);
std::unique_ptr<Kernel> make_expand_factors(const KernelSpec& spec);
std::unique_ptr<Kernel> make_add_error(const KernelSpec& spec);
std::unique_ptr<Kernel> make_commit_state(const KernelSpec& spec);
std::unique_ptr<Kernel> make_update_buffer(const KernelSpec& spec);

// Bytes of scratch memory, for the kernels that need it.
int64_t cross_entropy_workspace(const KernelSpec& spec);
int64_t layer_norm_weight_grad_workspace(const KernelSpec& spec);
int64_t rms_norm_weight_grad_workspace(const KernelSpec& spec);
int64_t sum_rows_workspace(const KernelSpec& spec);
int64_t sum_squares_workspace(const KernelSpec& spec);
int64_t error_squares_workspace(const KernelSpec& spec);

// The second stage of a sum over rows (kernels/row_blocks.h): out[c] (+)= the sum over blocks b, in order, of
// partial[b * stride + c], for c in [0, columns).
void sum_blocks(int threads, const float* partial, int64_t blocks, int64_t stride, int64_t columns,
                bool accumulate, float* out);

}  // namespace dstrain::simd
