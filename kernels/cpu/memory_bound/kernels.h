// The functions that make this folder's kernels; simd.cpp chooses among them.
#pragma once

#include <memory>

#include "kernels/operands.h"

namespace dstrain::simd {

// make_NAME makes the kernel of the op NAME, for each op of family memory_bound.
#define OP(op, family)
#define MEMORY_BOUND_OP(op) std::unique_ptr<Kernel> make_##op(const KernelSpec& spec);
#include "runtime/ir/op_list.def"

// The same with error feedback, which make_quantize_int4 and make_requantize_int4 call.
std::unique_ptr<Kernel> make_quantize_int4_with_errors(const KernelSpec& spec);
std::unique_ptr<Kernel> make_requantize_int4_with_errors(const KernelSpec& spec);

// Bytes of scratch memory, for the kernels that need it.
int64_t cross_entropy_workspace(const KernelSpec& spec);
int64_t cross_entropy_part_workspace(const KernelSpec& spec);
int64_t layer_norm_weight_grad_workspace(const KernelSpec& spec);
int64_t rms_norm_weight_grad_workspace(const KernelSpec& spec);
int64_t max_pool_grad_workspace(const KernelSpec& spec);
int64_t batch_norm_workspace(const KernelSpec& spec);
int64_t batch_norm_grad_workspace(const KernelSpec& spec);
int64_t reduce_workspace(const KernelSpec& spec);
int64_t put_workspace(const KernelSpec& spec);
int64_t sort_workspace(const KernelSpec& spec);
int64_t sum_rows_workspace(const KernelSpec& spec);
int64_t sum_squares_workspace(const KernelSpec& spec);
int64_t error_squares_workspace(const KernelSpec& spec);

// The second stage of a sum over rows (runtime/ir/ops/row_blocks.h): out[c] (+)= the sum over blocks b, in order, of
// partial[b * stride + c], for c in [0, columns).
void sum_blocks(int threads, const float* partial, int64_t blocks, int64_t stride, int64_t columns,
                bool accumulate, float* out);

}  // namespace dstrain::simd
