// Multi-head self-attention on the CPU, causal or not, forward and backward. It is blocked (Dao et al.,
// "FlashAttention", 2022): no T x T matrix is in memory, and only blocks with a key that a query sees are computed.
// Softmax and sums are fp32. Dropout masks are a function of (seed, site, sample, element) (runtime/core/philox.h) and are
// computed again in the backward pass. bf16 uses AMX tiles or the dot products of AVX512_BF16 if the CPU has them; everything
// else uses Highway.
// Invariant: the number of threads changes no bit of a result.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/ir/kernel.h"

namespace dstrain {

// Returns the bytes of scratch memory that a kernel of `spec` (attention or attention_grad) needs for one run.
int64_t attention_workspace_bytes(const KernelSpec& spec);

// Returns the kernel of `spec`: attention (q, k, v, or one tensor of them -> y (B*T,C), lse f32 (B,H,T)) or
// attention_grad (d_y, the same, y, lse -> their gradients) in f32, bf16 or f16, with any number of heads, heads of keys
// that divides it, head size and window, and with documents as the last operand or without; or not causal, with neither
// window nor documents. Throws InternalError for any other spec.
std::unique_ptr<Kernel> make_attention(const KernelSpec& spec);

}  // namespace dstrain
