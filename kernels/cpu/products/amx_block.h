// The block kernel of a bf16 product on AMX tiles. Requires max_isa() == amx.
#pragma once

#include "kernels/cpu/products/panel_gemm.h"

namespace dstrain {

const BlockKernel& amx_block();

}  // namespace dstrain
