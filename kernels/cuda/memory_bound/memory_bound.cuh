// The kernels of every op that is neither a product nor attention, in f32, bf16 and f16. Memory bounds their speed,
// so they use 16-byte accesses where addresses allow, masked ends, and one pass over memory where one is enough.
// 16-bit operands are widened to f32 when they are loaded and rounded to nearest even when they are stored.
// Invariant: results depend neither on the grid of a launch nor on the alignment of an operand.
//
// Compiled with -fmad=false: only fmaf is fused. So the kernels that compute in the order of kernels/cpu/simd give
// its bits: embed, its gradients, add, relu, dropout, cast, accumulate, round_wire, sum_squares, quantize, optimizers.
#pragma once

#include "kernels/cuda/launch.cuh"
#include "kernels/operands.h"

namespace dstrain::DSTRAIN_BACKEND {

// Returns the bytes of scratch memory that the kernel of `spec` needs; 0 for most ops.
int64_t memory_bound_workspace_bytes(const KernelSpec& spec);

// Returns the kernel of `spec`, or null for products and attention.
std::unique_ptr<Kernel> make_memory_bound(const KernelSpec& spec, const LaunchContext& context);

// The functions that make the kernels; memory_bound.cu has the table that chooses among them.
std::unique_ptr<Kernel> make_embed(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_embed_token_grad(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_embed_position_grad(const KernelSpec& spec,
                                                 const LaunchContext& context);
std::unique_ptr<Kernel> make_layer_norm(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_layer_norm_input_grad(const KernelSpec& spec,
                                                   const LaunchContext& context);
std::unique_ptr<Kernel> make_layer_norm_weight_grad(const KernelSpec& spec,
                                                    const LaunchContext& context);
std::unique_ptr<Kernel> make_activation(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_activation_grad(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_add(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_add_dropout(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_dropout_grad(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_cross_entropy(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_sum_rows(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_cast(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_accumulate(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_round_wire(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_sum_squares(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_adam(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_adagrad(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_lion(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_lamb_direction(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_lamb(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_sgd(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_muon_momentum(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_muon(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_quantize(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_dequantize(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_quantize_int4(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_requantize_int4(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_sum_int4(const KernelSpec& spec, const LaunchContext& context);
std::unique_ptr<Kernel> make_error_squares(const KernelSpec& spec, const LaunchContext& context);

std::unique_ptr<RankSum> make_rank_sum();

// Bytes of scratch memory, for the kernels that need it.
int64_t embed_token_grad_workspace(const KernelSpec& spec);
int64_t layer_norm_weight_grad_workspace(const KernelSpec& spec);
int64_t cross_entropy_workspace(const KernelSpec& spec);
int64_t sum_rows_workspace(const KernelSpec& spec);
int64_t sum_squares_workspace(const KernelSpec& spec);
int64_t error_squares_workspace(const KernelSpec& spec);

}  // namespace dstrain::DSTRAIN_BACKEND
