// Attention in bf16 on tiles. All five products have bf16 operands and fp32 sums, by TDPBF16PS (AMX) or VDPBF16PS
// (AVX512_BF16). Weights and score gradients are rounded to bf16 between two products; everything else is fp32. The forward
// pass computes scores (a vector holds 16 keys of one query). The backward pass computes their transpose (a vector holds
// 16 queries of one key), so that its products can read the vectors without transposing them.
#pragma once

#include "kernels/cpu/attention/implementation.h"

namespace dstrain::attention {

// Both return null if this CPU or this build lacks the instructions, and the vector conversion to bf16.
const Implementation* amx_implementation();
const Implementation* dot_implementation();

}  // namespace dstrain::attention
