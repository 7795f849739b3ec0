// Products of a dtype that no library multiplies here (f16; bf16 below AVX-512): operands are
// widened block by block into the workspace, multiplied in f32 and the result rounded once.
#pragma once

#include <memory>

#include "runtime/ir/product.h"

namespace dstrain {

int64_t wide_product_workspace_bytes(const Product& product);
std::unique_ptr<Kernel> make_wide_product(const Product& product);

}  // namespace dstrain
