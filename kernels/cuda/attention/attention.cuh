// Multi-head self-attention on GPUs, causal or not, forward and backward (Dao et al., "FlashAttention", 2022; work is
// divided as in "FlashAttention-2", 2023): no T x T matrix is in memory, and only blocks with a key that a query sees are
// computed. bf16 and f16 with heads of up to 128 elements use tensor cores with f32 sums, everything else ordinary multiply-adds.
// On Hopper GPUs causal heads of 64 and 128 elements of 16 bits have kernels of their own (hopper/hopper.cuh).
// Dropout masks are those of runtime/core/philox.h and are computed again in the backward pass. No sum is shared
// between blocks, so every run gives the same bits.
#pragma once

#include <memory>

#include "kernels/cuda/launch.cuh"
#include "runtime/ir/kernel.h"

namespace dstrain::DSTRAIN_BACKEND {

// Returns the bytes of scratch memory that a kernel of `spec` (attention or attention_grad) needs for one run.
int64_t attention_workspace_bytes(const KernelSpec& spec);

// Returns the kernel of `spec`: attention (q, k, v, or one tensor of them -> y (B*T,C), lse f32 (B,H,T)) or
// attention_grad (d_y, the same, y, lse -> their gradients) in f32, bf16 or f16, with any number of heads, heads of keys
// that divides it, head size and window, and with documents as the last operand or without; or not causal, with neither
// window nor documents. Throws InternalError for any other spec.
std::unique_ptr<Kernel> make_attention(const KernelSpec& spec, const LaunchContext& context);

}  // namespace dstrain::DSTRAIN_BACKEND
