// The launches of the gradients on wgmma, after launch_delta.
#pragma once

#include "kernels/cuda/attention/hopper/blocks.cuh"

namespace dstrain::DSTRAIN_BACKEND {

void launch_hopper_query_gradient(const AttentionArguments& a, int64_t samples,
                                  const TensorMaps& maps, const LaunchContext& context);
void launch_hopper_key_gradients(const AttentionArguments& a, int64_t samples,
                                 const TensorMaps& maps, const LaunchContext& context);

}  // namespace dstrain::DSTRAIN_BACKEND
