// A product by ordinary multiply-adds, for any size and alignment. The emulated device uses it for all products, a
// GPU for those that cuBLASLt has no algorithm for.
#pragma once

#include "kernels/cuda/launch.cuh"
#include "runtime/ir/kernel.h"
#include "runtime/ir/product.h"

namespace dstrain::DSTRAIN_BACKEND {

// Enqueues the product on the context's stream. Operands are those of runtime/ir/op_list.def.
void launch_tiled_product(const Product& product, const KernelCall& call,
                          const LaunchContext& context);

}  // namespace dstrain::DSTRAIN_BACKEND
