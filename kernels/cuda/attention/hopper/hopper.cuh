// Attention on Hopper's own instructions: products of warpgroups (wgmma) on operands that the tensor memory engine copies.
// They take causal attention of heads of 64 or 128 elements of 16 bits on GPUs of compute capability 9.0, in builds with code
// for it; the kernels beside this folder take everything else.
#pragma once

#include "kernels/cuda/attention/arguments.cuh"

namespace dstrain::DSTRAIN_BACKEND {

// Enqueues attention and returns true, or does nothing and returns false where these kernels do not take it. That depends on
// sizes, alignment and device alone. T: bf16 or f16.
template <class T>
bool launch_hopper_forward(const AttentionArguments& a, int64_t samples,
                           const LaunchContext& context);
// The same for d_q, d_k and d_v, after launch_delta, and after launch_end_queries where there are documents.
template <class T>
bool launch_hopper_gradients(const AttentionArguments& a, int64_t samples,
                             const LaunchContext& context);

}  // namespace dstrain::DSTRAIN_BACKEND
