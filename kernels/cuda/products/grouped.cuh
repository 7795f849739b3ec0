// The products of the rows of experts on GPUs: grouped_linear, grouped_input_grad and grouped_weight_grad in f32, bf16 and f16,
// with sums in f32. How many rows an expert has stays on the device.
#pragma once

#include <memory>

#include "kernels/cuda/launch.cuh"
#include "runtime/ir/kernel.h"

namespace dstrain::DSTRAIN_BACKEND {

// Returns the kernel of one of the three ops.
std::unique_ptr<Kernel> make_grouped(const KernelSpec& spec, const LaunchContext& context);

}  // namespace dstrain::DSTRAIN_BACKEND
