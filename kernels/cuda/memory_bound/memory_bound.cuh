// The bodies of every op that is neither a product nor attention: limited by memory. 16-byte accesses
// where addresses allow them, masked ends, one pass over memory where one is enough. For f32, bf16
// and f16; 16-bit operands are widened to f32 on load and rounded to nearest even on store.
// Invariant: results depend neither on the shape of a launch nor on where an operand starts.
//
// Compiled without contraction of products and sums (-fmad=false; fmaf where one is meant), so that what
// is exact arithmetic in the order of kernels/cpu/simd has its bits: embed and its gradients, add, relu,
// dropout, cast, accumulate, round_wire, sum_squares, adam, sgd.
#pragma once

#include "kernels/cuda/launch.cuh"
#include "kernels/operands.h"

namespace dstrain::DSTRAIN_BACKEND {

// Scratch bytes that the kernel of `spec` needs; 0 for most.
int64_t memory_bound_workspace_bytes(const KernelSpec& spec);

// The kernel of `spec`, or null where this family has no body for the op.
std::unique_ptr<Kernel> make_memory_bound(const KernelSpec& spec, const LaunchContext& context);

// By op, a source file for each few of them.
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
std::unique_ptr<Kernel> make_sgd(const KernelSpec& spec, const LaunchContext& context);

// Scratch bytes of the kernels that need some.
int64_t embed_token_grad_workspace(const KernelSpec& spec);
int64_t layer_norm_weight_grad_workspace(const KernelSpec& spec);
int64_t cross_entropy_workspace(const KernelSpec& spec);
int64_t sum_rows_workspace(const KernelSpec& spec);
int64_t sum_squares_workspace(const KernelSpec& spec);

}  // namespace dstrain::DSTRAIN_BACKEND
