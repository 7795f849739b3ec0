// The kernels of every op that is neither a product nor attention, in f32, bf16 and f16. Memory bounds their speed,
// so they use 16-byte accesses where addresses allow, masked ends, and one pass over memory where one is enough.
// 16-bit operands are widened to f32 when they are loaded and rounded to nearest even when they are stored.
// Invariant: results depend neither on the grid of a launch nor on the alignment of an operand.
//
// Compiled with -fmad=false: only fmaf is fused. So the kernels that compute in the order of kernels/cpu/simd give
// its bits: embed, its gradients, add, scale, relu, dropout, cast, accumulate, round_wire, sum_squares, quantize,
// unpack_weight, optimizers.
#pragma once

#include "kernels/cuda/launch.cuh"
#include "kernels/operands.h"

namespace dstrain::DSTRAIN_BACKEND {

// Returns the bytes of scratch memory that the kernel of `spec` needs; 0 for most ops.
int64_t memory_bound_workspace_bytes(const KernelSpec& spec);

// Returns whether there is a kernel for both ops of `spec`, a layer_norm_grad or add_layer_norm; those made without it
// run the two.
bool memory_bound_fuses(const KernelSpec& spec);

// Returns the kernel of `spec`, or null for products and attention.
std::unique_ptr<Kernel> make_memory_bound(const KernelSpec& spec, const LaunchContext& context);

// The functions that make the kernels; memory_bound.cu has the table that chooses among them.
std::unique_ptr<Kernel> make_embed(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_embed_token_grad(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_embed_position_grad(const KernelSpec& spec,
                                                 const LaunchContext& context);
// The same with documents, which make_embed_position_grad calls.
std::unique_ptr<Kernel> make_document_position_grad(const KernelSpec& spec,
                                                    const LaunchContext& context);
std::unique_ptr<Kernel> make_layer_norm(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_layer_norm_input_grad(const KernelSpec& spec,
                                                   const LaunchContext& context);
std::unique_ptr<Kernel> make_layer_norm_weight_grad(const KernelSpec& spec,
                                                    const LaunchContext& context);
std::unique_ptr<Kernel> make_layer_norm_grad(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_add_layer_norm(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_activation(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_activation_grad(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_add(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_scale(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_rms_norm(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_rms_norm_input_grad(const KernelSpec& spec,
                                                 const LaunchContext& context);
std::unique_ptr<Kernel> make_rms_norm_weight_grad(const KernelSpec& spec,
                                                  const LaunchContext& context);
// rotary_grad too
std::unique_ptr<Kernel> make_rotary(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_gated(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_gated_grad(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_add_dropout(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_dropout_grad(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_cross_entropy(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_sum_rows(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_cast(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_accumulate(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_round_wire(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_sum_squares(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_adam(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_adam_of_own_masters(const KernelSpec& spec,
                                                 const LaunchContext& context);
std::unique_ptr<Kernel> make_adagrad(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_lion(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_lamb_direction(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_lamb(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_sgd(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_muon_momentum(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_muon(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_unpack_weight(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_quantize(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_dequantize(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_quantize_int4(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_quantize_int4_with_errors(const KernelSpec& spec,
                                                       const LaunchContext& context);
std::unique_ptr<Kernel> make_requantize_int4_with_errors(const KernelSpec& spec,
                                                         const LaunchContext& context);
std::unique_ptr<Kernel> make_requantize_int4(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_sum_int4(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_quantize_signs(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_requantize_signs(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_dequantize_signs(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_positive_bits(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_local_momentum(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_frozen_adam(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_lamb_average(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_momentum_scale(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_scaled_momentum(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_frozen_lamb_direction(const KernelSpec& spec,
                                                   const LaunchContext& context);
std::unique_ptr<Kernel> make_lamb_factor(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_frozen_lamb(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_local_step(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_local_weights(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_end_local_steps(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_error_squares(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_gram_schmidt(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_random_factor(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_project_rows(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_project_columns(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_expand_factors(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_add_error(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_commit_state(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_update_buffer(const KernelSpec& spec, const LaunchContext& context);

// Returns the kernel of the first specs of `specs`, all of them adam, that one launch takes; `count`: how many. Null
// if the first two differ in more than elements, weight decay and lr_scale.
std::unique_ptr<KernelGroup> make_adam_group(std::span<const KernelSpec> specs, size_t& count,
                                             const LaunchContext& context);

std::unique_ptr<RankSum> make_rank_sum();

bool layer_norm_grad_fuses(const KernelSpec& spec);
bool add_layer_norm_fuses(const KernelSpec& spec);

// Bytes of scratch memory, for the kernels that need it.
int64_t embed_token_grad_workspace(const KernelSpec& spec);
int64_t embed_position_grad_workspace(const KernelSpec& spec);
int64_t layer_norm_weight_grad_workspace(const KernelSpec& spec);
int64_t layer_norm_grad_workspace(const KernelSpec& spec);
int64_t rms_norm_weight_grad_workspace(const KernelSpec& spec);
int64_t cross_entropy_workspace(const KernelSpec& spec);
int64_t sum_rows_workspace(const KernelSpec& spec);
int64_t sum_squares_workspace(const KernelSpec& spec);
int64_t error_squares_workspace(const KernelSpec& spec);
int64_t project_columns_workspace(const KernelSpec& spec);

}  // namespace dstrain::DSTRAIN_BACKEND
