// SIMD kernels of every op that is neither a product nor attention, in f32, bf16 and f16. They are written with
// Highway and run with the vectors that max_isa() allows. 16-bit operands are widened to f32 when they are
// loaded and rounded to nearest even when they are stored.
// Invariant: results depend neither on the number of threads nor on the alignment of an operand.
#pragma once

#include <memory>

#include "runtime/ir/kernel.h"

namespace dstrain {

// Returns the bytes of scratch memory that the kernel of `spec` needs; 0 for most ops.
int64_t memory_bound_workspace_bytes(const KernelSpec& spec);

// Returns the kernel of `spec`, or null for products and attention.
std::unique_ptr<Kernel> make_memory_bound(const KernelSpec& spec);

}  // namespace dstrain
