// A product by ordinary multiply-adds: any size, any alignment. What the emulated device multiplies with, and
// a GPU where no library has an algorithm.
#pragma once

#include "kernels/cuda/launch.cuh"
#include "runtime/ir/kernel.h"
#include "runtime/ir/product.h"

namespace dstrain::DSTRAIN_BACKEND {

// Enqueues the product on the context's stream; operands as in op.h.
void launch_tiled_product(const Product& product, const KernelCall& call,
                          const LaunchContext& context);

}  // namespace dstrain::DSTRAIN_BACKEND
