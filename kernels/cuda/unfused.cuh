// A product with gelu as two kernels, for a device that has no single one after all.
#pragma once

#include <memory>

#include "kernels/cuda/launch.cuh"
#include "runtime/ir/kernel.h"

namespace dstrain::DSTRAIN_BACKEND {

// The kernel of a linear or linear_input_grad with gelu (op.h), made of the plain product and of
// activation or activation_grad, in place where gelu's operand has no buffer of its own. Scratch memory:
// the product's.
std::unique_ptr<Kernel> make_unfused(const KernelSpec& spec, const LaunchContext& context);

}  // namespace dstrain::DSTRAIN_BACKEND
