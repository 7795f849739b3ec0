// bf16 products on AMX tiles, or on AVX512_BF16 if there are none. Requires max_isa() >= avx512_bf16.
#pragma once

#include <memory>

#include "runtime/ir/product.h"

namespace dstrain {

int64_t panel_product_workspace_bytes(const Product& product);

// Returns the bytes of the packed weight (panel_pack.h), or 0 if the product has so many rows that packing the
// weight in every product costs next to nothing.
int64_t panel_product_packed_bytes(const Product& product);

// Returns the rows in a part of a weight gradient's sums (KernelLibrary::sum_rows_part).
int64_t panel_product_sum_rows_part(const Product& product);

std::unique_ptr<Kernel> make_panel_product(const Product& product);

// Does what the product's kernel would.
void run_panel_product(const Product& product, const KernelCall& call);

// Returns the kernel of pack_weight for the product.
std::unique_ptr<Kernel> make_panel_pack(const Product& product);

}  // namespace dstrain
