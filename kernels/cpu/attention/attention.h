// Causal multi-head self-attention on the CPU, forward and backward: blocked (Dao et al.,
// "FlashAttention", 2022), so no T x T matrix is ever in memory and only the causal half is
// computed. Stands on runtime/ir/kernel.h. Softmax and all sums are fp32; dropout masks are the pure
// function of (seed, site, sample, element) of philox.h, made again in the backward pass. bf16 runs
// on AMX tiles where the chip has them, everything else on Highway.
// Invariant: results are bitwise independent of the number of threads.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/ir/kernel.h"

namespace dstrain {

// Bytes of scratch memory a kernel of `spec` (attention or attention_grad) needs for one run.
int64_t attention_workspace_bytes(const KernelSpec& spec);

// The kernel for `spec`: op attention (qkv (B*T,3C) -> y (B*T,C), lse f32 (B,H,T)) or attention_grad
// (d_y, qkv, y, lse -> d_qkv), run dtype f32, bf16 or f16, heads dividing C. Throws InternalError
// on any other spec.
std::unique_ptr<Kernel> make_attention(const KernelSpec& spec);

}  // namespace dstrain
