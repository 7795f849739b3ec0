// Convolutions on the CPU: sums of products that read the input where it is, so that windows are never written to memory.
// Minimum: the operations of the places of windows that are inside, and each operand once.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/ir/kernel.h"

namespace dstrain {

// Returns whether these kernels compute an op of the family: f32, and bf16 in pairs of channels on processors with AVX512_BF16
// alone. Others are computed by kernels/convolution.h.
bool computes_directly(const KernelSpec& spec);

// Return the scratch memory, and the kernel, of an op for which computes_directly().
int64_t direct_convolution_workspace_bytes(const KernelSpec& spec);
std::unique_ptr<Kernel> make_direct_convolution(const KernelSpec& spec);

}  // namespace dstrain
