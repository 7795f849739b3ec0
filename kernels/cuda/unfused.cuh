// A product with gelu as two kernels, for the sizes that cuBLASLt has no fused kernel for.
#pragma once

#include <memory>

#include "kernels/cuda/launch.cuh"
#include "runtime/ir/kernel.h"

namespace dstrain::DSTRAIN_BACKEND {

// Returns the kernel of a linear or linear_input_grad with gelu (runtime/ir/op_list.def). It runs the plain product, then
// activation or activation_grad, which works in place if gelu's operand has no buffer of its own. Needs the
// product's scratch memory.
std::unique_ptr<Kernel> make_unfused(const KernelSpec& spec, const LaunchContext& context);

}  // namespace dstrain::DSTRAIN_BACKEND
