// orthogonalize on a device: kernels/newton_schulz.h with the device's products.
#pragma once

#include <memory>

#include "kernels/cuda/launch.cuh"
#include "runtime/ir/kernel.h"

namespace dstrain::DSTRAIN_BACKEND {

// Returns the bytes of scratch memory that the kernel of `spec` needs.
int64_t orthogonalize_workspace_bytes(const KernelSpec& spec);

// Returns the kernel of `spec`. The host does not know whether the step is skipped, so it runs in any case.
std::unique_ptr<Kernel> make_orthogonalize(const KernelSpec& spec, const LaunchContext& context);

}  // namespace dstrain::DSTRAIN_BACKEND
