// Attention in bf16 on AMX tiles. All five products use TDPBF16PS (bf16 operands, fp32 sums). Weights and score
// gradients are rounded to bf16 between two products; everything else is fp32. The forward pass computes scores
// (a vector holds 16 keys of one query). The backward pass computes their transpose (a vector holds 16 queries
// of one key), so that its products can read the vectors without transposing them.
#pragma once

#include "kernels/cpu/attention/implementation.h"

namespace dstrain::attention {

// Returns null if this CPU or this build lacks AMX tiles or the vector conversion to bf16.
const Implementation* amx_implementation();

}  // namespace dstrain::attention
