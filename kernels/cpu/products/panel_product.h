// bf16 products on AMX tiles, or on AVX512_BF16 without them. Needs max_isa() >= avx512_bf16.
#pragma once

#include <memory>

#include "runtime/ir/product.h"

namespace dstrain {

int64_t panel_product_workspace_bytes(const Product& product);

// Bytes of the weight in the order of panel_pack.h; 0 where there are so many rows that putting it in
// that order within each product is as good.
int64_t panel_product_packed_bytes(const Product& product);

std::unique_ptr<Kernel> make_panel_product(const Product& product);

// The kernel of pack_weight for the product.
std::unique_ptr<Kernel> make_panel_pack(const Product& product);

}  // namespace dstrain
