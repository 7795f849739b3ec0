// Products of a 16-bit dtype that the CPU cannot multiply (f16; bf16 without AVX512_BF16): operands are widened
// block by block into the workspace, multiplied in f32, and the result is rounded once.
#pragma once

#include <memory>

#include "runtime/ir/product.h"

namespace dstrain {

int64_t wide_product_workspace_bytes(const Product& product);
// Returns the rows in a part of a weight gradient's sums (KernelLibrary::sum_rows_part).
int64_t wide_product_sum_rows_part();
std::unique_ptr<Kernel> make_wide_product(const Product& product);

// Does what the product's kernel would.
void run_wide_product(const Product& product, const KernelCall& call);

}  // namespace dstrain
