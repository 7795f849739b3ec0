// Causal multi-head self-attention on GPUs, forward and backward (Dao et al., "FlashAttention", 2022; work
// division as in "FlashAttention-2", 2023): no T x T matrix in memory, only the causal half computed.
// Stands on runtime/ir/kernel.h. bf16 and f16 with heads of up to 128 numbers run on tensor cores with f32 sums,
// everything else on ordinary multiply-adds. Dropout masks are those of philox.h, made again in the
// backward pass. No sum is shared between blocks, so results are the same bits in every run.
#pragma once

#include <memory>

#include "kernels/cuda/launch.cuh"
#include "runtime/ir/kernel.h"

namespace dstrain::DSTRAIN_BACKEND {

// Bytes of scratch memory a kernel of `spec` (attention or attention_grad) needs for one run.
int64_t attention_workspace_bytes(const KernelSpec& spec);

// The kernel for `spec`: op attention (qkv (B*T,3C) -> y (B*T,C), lse f32 (B,H,T)) or attention_grad
// (d_y, qkv, y, lse -> d_qkv), run dtype f32, bf16 or f16, heads dividing C. Throws InternalError
// on any other spec.
std::unique_ptr<Kernel> make_attention(const KernelSpec& spec, const LaunchContext& context);

}  // namespace dstrain::DSTRAIN_BACKEND
