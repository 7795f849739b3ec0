// bf16 products on oneDNN's matmul, accumulated in f32 over plain (unpacked) layouts.
#pragma once

#include <memory>

#include "kernels/problems/product.h"

namespace dstrain {

// Whether oneDNN has a primitive for the product on this CPU (ONEDNN_MAX_CPU_ISA limits it).
bool dnnl_handles(const Product& product);
int64_t dnnl_product_workspace_bytes(const Product& product);
std::unique_ptr<Kernel> make_dnnl_product(const Product& product);

}  // namespace dstrain
