// Blocks of a product on AMX tiles. Needs max_isa() == amx.
#pragma once

#include "kernels/cpu/products/panel_gemm.h"

namespace dstrain {

const BlockKernel& amx_block();

}  // namespace dstrain
