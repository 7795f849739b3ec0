// Matrix products of the linear layer on the CPU: linear, linear_input_grad, linear_weight_grad, and pack_weight,
// which packs a weight once per step for one of the first two. bf16 operands are multiplied directly if the CPU
// has AMX or AVX512_BF16. Otherwise they are widened block by block for an f32 product, as f16 operands are. The
// choice of implementation and the order of additions depend on shapes and dtypes alone.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/ir/product.h"

namespace dstrain {

// Returns the bytes of scratch memory that a product of `spec` needs (KernelLibrary::workspace_bytes).
int64_t product_workspace_bytes(const KernelSpec& spec);

// Returns the bytes of the packed weight of a linear or linear_input_grad, or 0 if packing it once per step does
// not pay. Does not read the packed operand of `spec`. pack_weight writes the packed weight, with
// PackAttrs::rows = R and PackAttrs::for_input_grad according to the op.
int64_t product_packed_bytes(const KernelSpec& spec);

// Returns the rows in a part of the sums of a linear_weight_grad (KernelLibrary::sum_rows_part).
int64_t product_sum_rows_part(const KernelSpec& spec);

// Returns the kernel of one of the four ops. It reads the packed weight if the spec has that operand, else the
// plain one. Throws InternalError for other ops or dtypes.
std::unique_ptr<Kernel> make_product(const KernelSpec& spec);

// The same of a product whose sizes are known when a step runs: one that reads the plain weight. run_product() allocates
// nothing. A row of a linear or linear_input_grad has the same bits whatever the number of rows.
int64_t product_workspace_bytes(const Product& product);
void run_product(const Product& product, const KernelCall& call);

}  // namespace dstrain
