// bf16 products on AMX tiles. Needs max_isa() == amx.
#pragma once

#include <memory>

#include "kernels/problems/product.h"

namespace dstrain {

int64_t amx_product_workspace_bytes(const Product& product);

// Bytes of the weight in the order of amx_pack.h; 0 where there are so many rows that putting it in
// that order within each product is as good.
int64_t amx_product_packed_bytes(const Product& product);

std::unique_ptr<Kernel> make_amx_product(const Product& product);

// The kernel of pack_weight for the product.
std::unique_ptr<Kernel> make_amx_pack(const Product& product);

}  // namespace dstrain
