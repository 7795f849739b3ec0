// The CPU's kernels: products, attention, and SIMD bodies of the rest.
#pragma once

#include <memory>

#include "runtime/ir/kernel.h"

namespace dstrain {

// A library whose kernels pick their instruction set when they run (limit: DSTRAIN_MAX_ISA=avx2).
std::unique_ptr<KernelLibrary> make_cpu_library();

}  // namespace dstrain
