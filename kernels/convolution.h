// A convolution and its gradients as products of a device's library: the windows of the input in scratch memory, or those that the
// gradient of the input is a sum of, and linear, linear_input_grad or linear_weight_grad of all.
#pragma once

#include <memory>

#include "runtime/ir/kernel.h"

namespace dstrain {

// Return the scratch memory, and the kernel, of an op of the family. `library` makes the kernels of its parts; it may go before the
// kernel does.
int64_t convolution_workspace_bytes(const KernelLibrary& library, const KernelSpec& spec);
std::unique_ptr<Kernel> make_convolution(const KernelLibrary& library, const KernelSpec& spec);

}  // namespace dstrain
