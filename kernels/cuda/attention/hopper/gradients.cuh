// The launch of d_q on wgmma, after launch_delta.
#pragma once

#include "kernels/cuda/attention/hopper/blocks.cuh"

namespace dstrain::DSTRAIN_BACKEND {

template <class T>
void launch_hopper_query_gradient(const AttentionArguments& a, int64_t samples,
                                  const TensorMaps& maps, const LaunchContext& context);

}  // namespace dstrain::DSTRAIN_BACKEND
