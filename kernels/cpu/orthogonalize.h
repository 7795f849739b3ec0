// orthogonalize on the CPU: kernels/newton_schulz.h with the products of kernels/cpu/products.
#pragma once

#include <memory>

#include "runtime/ir/kernel.h"

namespace dstrain {

// Returns the bytes of scratch memory that the kernel of `spec` needs.
int64_t orthogonalize_workspace_bytes(const KernelSpec& spec);

// Returns the kernel of `spec`. It does nothing if state->skip is set.
std::unique_ptr<Kernel> make_orthogonalize(const KernelSpec& spec);

}  // namespace dstrain
