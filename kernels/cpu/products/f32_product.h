// Products in f32: one sgemm, then bias and relu in one pass over the result.
#pragma once

#include <memory>

#include "runtime/ir/product.h"

namespace dstrain {

int64_t f32_product_workspace_bytes(const Product& product);
std::unique_ptr<Kernel> make_f32_product(const Product& product);

// Does what the product's kernel would.
void run_f32_product(const Product& product, const KernelCall& call);

}  // namespace dstrain
