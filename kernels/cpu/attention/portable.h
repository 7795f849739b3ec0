// Attention for any CPU and run dtype: fp32 arithmetic on Highway vectors. 16-bit operands are widened block by
// block into scratch memory.
#pragma once

#include "kernels/cpu/attention/dropout_bits.h"
#include "kernels/cpu/attention/implementation.h"

namespace dstrain::attention {

// Returns the implementation for the widest vectors that the CPU has and max_isa() allows.
const Implementation& portable_implementation();

// Writes the mask bits of `request`, with the same choice of vectors.
void fill_mask_rows(const MaskRows& request);

}  // namespace dstrain::attention
