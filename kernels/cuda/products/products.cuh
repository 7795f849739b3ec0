// Matrix products of the linear layer on GPUs: linear (with bias and relu), linear_input_grad and
// linear_weight_grad in f32, bf16 and f16, sums in f32. Stands on runtime/ir/kernel.h.
#pragma once

#include <memory>

#include "kernels/cuda/launch.cuh"
#include "runtime/ir/kernel.h"

namespace dstrain::DSTRAIN_BACKEND {

// What the products of one library share (LaunchContext::products).
std::shared_ptr<ProductState> make_product_state();

// Whether a product with gelu may be one kernel: 16-bit numbers, rows that begin 16-byte aligned.
bool product_fuses(const KernelSpec& spec);

// Bytes of scratch memory a product of `spec` needs.
int64_t product_workspace_bytes(const KernelSpec& spec);

// The kernel of one of the three ops; weights come as they are (packed_bytes is 0). Null where the
// device's library turns out to have none for the product with its gelu. Throws InternalError for other
// ops or dtypes.
std::unique_ptr<Kernel> make_product(const KernelSpec& spec, const LaunchContext& context);

}  // namespace dstrain::DSTRAIN_BACKEND
