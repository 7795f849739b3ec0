// Our own bodies of every op that is neither a product nor attention, written with Highway: one
// binary, the instruction set chosen when it runs. For f32, bf16 and f16; 16-bit operands are widened to
// f32 on load and rounded to nearest even on store.
// Invariant: results depend neither on the number of threads nor on where an operand starts.
#pragma once

#include <memory>

#include "runtime/ir/kernel.h"

namespace dstrain {

// Scratch bytes that the kernel of `spec` needs; 0 for most.
int64_t simd_workspace_bytes(const KernelSpec& spec);

// The kernel of `spec`, or null where this family has no body for the op.
std::unique_ptr<Kernel> make_simd(const KernelSpec& spec);

// Makes Highway's dispatch keep to max_isa() (runtime/core/isa.h), in every kernel of the process that
// it serves. make_simd calls it; others that use Highway call it before their first kernel.
void limit_highway_targets();

}  // namespace dstrain
