// The kernels of every op that is neither a product nor attention, in f32, bf16 and f16. Memory bounds their speed,
// so they use 16-byte accesses where addresses allow, masked ends, and one pass over memory where one is enough.
// 16-bit operands are widened to f32 when they are loaded and rounded to nearest even when they are stored.
// Invariant: results depend neither on the grid of a launch nor on the alignment of an operand.
//
// Compiled with -fmad=false: only fmaf is fused. So the kernels that compute in the order of kernels/cpu/memory_bound give
// its bits: embed, its gradients, add_rows, split_columns, join_columns, add, scale, relu, dropout, cast, accumulate,
// round_wire, sum_squares, scan, sort, quantize, unpack_weight, optimizers.
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

// make_NAME makes the kernel of the op NAME, for each op of family memory_bound.
#define OP(op, family)
#define MEMORY_BOUND_OP(op) \
  std::unique_ptr<Kernel> make_##op(const KernelSpec& spec, const LaunchContext& context);
#include "runtime/ir/op_list.def"

// Kernels of ops whose operands ask for another one; the op's own function calls these.
std::unique_ptr<Kernel> make_document_position_grad(const KernelSpec& spec,
                                                    const LaunchContext& context);
std::unique_ptr<Kernel> make_adam_of_own_masters(const KernelSpec& spec,
                                                 const LaunchContext& context);
std::unique_ptr<Kernel> make_quantize_int4_with_errors(const KernelSpec& spec,
                                                       const LaunchContext& context);
std::unique_ptr<Kernel> make_requantize_int4_with_errors(const KernelSpec& spec,
                                                         const LaunchContext& context);

// Returns the kernel of the first specs of `specs`, all of them adam, that one launch takes; `count`: how many. Null
// if the first two differ in more than elements, weight decay and lr_scale.
std::unique_ptr<MultiTensorKernel> make_multi_tensor_adam(std::span<const KernelSpec> specs,
                                                          size_t& count,
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
int64_t max_pool_grad_workspace(const KernelSpec& spec);
int64_t batch_norm_workspace(const KernelSpec& spec);
int64_t batch_norm_grad_workspace(const KernelSpec& spec);
int64_t cross_entropy_workspace(const KernelSpec& spec);
int64_t cross_entropy_part_workspace(const KernelSpec& spec);
int64_t reduce_workspace(const KernelSpec& spec);
int64_t put_workspace(const KernelSpec& spec);
int64_t scan_workspace(const KernelSpec& spec);
int64_t sort_workspace(const KernelSpec& spec);
int64_t sum_rows_workspace(const KernelSpec& spec);
int64_t sum_squares_workspace(const KernelSpec& spec);
int64_t error_squares_workspace(const KernelSpec& spec);
int64_t project_columns_workspace(const KernelSpec& spec);

}  // namespace dstrain::DSTRAIN_BACKEND
