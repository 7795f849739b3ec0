// The CPU's kernel library: matrix products, attention, and SIMD kernels for all other ops.
#pragma once

#include <memory>

#include "runtime/ir/kernel.h"

namespace dstrain {

// Returns the library. Its kernels use the best instruction set that the CPU has and max_isa() allows.
std::unique_ptr<KernelLibrary> make_cpu_library();

}  // namespace dstrain
