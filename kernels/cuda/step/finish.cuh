// The end of a step on the device. The kernels read a few hundred bytes, so latency dominates; each is one block.
#pragma once

#include <memory>

#include "kernels/cuda/launch.cuh"
#include "runtime/ir/kernel.h"

namespace dstrain::DSTRAIN_BACKEND {

std::unique_ptr<FinishKernels> make_finish_kernels(const FinishRule& rule,
                                                   const LaunchContext& context);

}  // namespace dstrain::DSTRAIN_BACKEND
