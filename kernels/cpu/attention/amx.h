// The body of attention for bf16 on AMX tiles. All five products run on TDPBF16PS (bf16 operands,
// fp32 sums); weights and score gradients are rounded to bf16 between two products, everything else
// is fp32. Forward works on scores (a vector is 16 keys of a query); backward on their transpose (a
// vector is 16 queries of a key), so that every operand of its products falls out of the vectors
// without a transposition.
#pragma once

#include "kernels/cpu/attention/implementation.h"

namespace dstrain::attention {

// Null where this processor, or this build, has no tiles or no vector conversion to bf16.
const Implementation* amx_implementation();

}  // namespace dstrain::attention
