// Matrix products of the linear layer on the CPU: linear, linear_input_grad, linear_weight_grad,
// and pack_weight, which lays a weight out once per step for one of the first two.
// bf16 is multiplied as it is where the CPU has AMX or AVX512_BF16. Elsewhere it is widened to an f32 product,
// block by block, as f16 is. Which body runs, and in which order it adds, depends on shapes and dtypes only.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/ir/kernel.h"

namespace dstrain {

// Bytes of scratch memory a product of `spec` needs (KernelLibrary::workspace_bytes).
int64_t product_workspace_bytes(const KernelSpec& spec);

// Bytes of the layout in which a linear or linear_input_grad of `spec` prefers its weight when it
// is packed once per step; 0 where packing does not pay. The packed operand of `spec` is not looked
// at. The layout is written by pack_weight with PackAttrs::rows = R and PackAttrs::for_input_grad set
// accordingly.
int64_t product_packed_bytes(const KernelSpec& spec);

// The kernel of one of the four ops. Reads the packed weight instead of the plain one where the
// spec has that operand. Throws InternalError for other ops or dtypes.
std::unique_ptr<Kernel> make_product(const KernelSpec& spec);

}  // namespace dstrain
