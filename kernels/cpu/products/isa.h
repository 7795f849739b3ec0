// Which matrix instructions the products may use: what the CPU and the system offer, limited by
// the environment variable DSTRAIN_MAX_ISA (avx2, avx512, amx). The same answer for the whole run.
#pragma once

namespace dstrain {

enum class ProductIsa {
  avx2,    // no instructions for bf16
  avx512,  // bf16 through the library's AVX-512 code
  amx,     // bf16 tiles
};

// Asks the system for the tile registers on first use. Throws UserError for an unknown limit.
ProductIsa product_isa();

}  // namespace dstrain
