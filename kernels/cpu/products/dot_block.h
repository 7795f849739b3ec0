// The block kernel of a bf16 product on AVX512_BF16's dot products of pairs. Requires max_isa() >= avx512_bf16.
#pragma once

#include "kernels/cpu/products/panel_gemm.h"

namespace dstrain {

const BlockKernel& dot_block();

}  // namespace dstrain
