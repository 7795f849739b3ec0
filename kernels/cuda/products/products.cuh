// Matrix products of the linear layer on GPUs: linear (with bias and relu), linear_input_grad and
// linear_weight_grad in f32, bf16 and f16, with sums in f32.
#pragma once

#include <memory>

#include "kernels/cuda/launch.cuh"
#include "runtime/ir/kernel.h"

namespace dstrain::DSTRAIN_BACKEND {

// Returns the state that the products of one library share (LaunchContext::products).
std::shared_ptr<ProductState> make_product_state();

// Returns whether a product with gelu or a residual may be one kernel: 16-bit elements, rows that begin 16-byte
// aligned.
bool product_fuses(const KernelSpec& spec);

// Returns the bytes of scratch memory that a product of `spec` needs.
int64_t product_workspace_bytes(const KernelSpec& spec);

// Returns the kernel of one of the three ops; weights are never packed. Returns null if cuBLASLt has no algorithm
// for the product with its gelu. Throws InternalError for other ops or dtypes.
std::unique_ptr<Kernel> make_product(const KernelSpec& spec, const LaunchContext& context);

}  // namespace dstrain::DSTRAIN_BACKEND
