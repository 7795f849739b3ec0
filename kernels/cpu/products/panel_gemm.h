// The inner part of a bf16 product: panels of A by panels of B (panel_pack.h), accumulated in f32 in
// ascending k, with the epilogue on the way out. Needs max_isa() >= avx512_bf16.
//
// A panel pair is a block of 32 x 32. How a block is multiplied is all that instruction sets differ
// in (amx_block.h, dot_block.h). The k of a block is walked in parts whose panel of B stays in the
// first-level cache while the panels of A stream past it.
#pragma once

#include <cstdint>

#include "kernels/cpu/products/panel_pack.h"

namespace dstrain {

// What happens to a finished sum s of element (i,j): s += add[i,j]; s += bias[j]; relu; then it is
// rounded to bf16 or written as f32. Matrices are row-major of m by n with `stride` a row.
struct Epilogue {
  const float* add = nullptr;
  const uint16_t* bias = nullptr;  // bf16
  bool relu = false;
  float* out_f32 = nullptr;  // exactly one of the two
  uint16_t* out_bf16 = nullptr;
  int64_t stride = 0;  // of add and out
  int64_t m = 0, n = 0;
};

// Panels of A and B over a range of k, and where their block of the result begins.
struct PanelBlock {
  TileSource a;
  int64_t a_panels = 0;
  char* packed_a = nullptr;  // a_panels panels, depth_blocks * kBlockBytes apart: written
  bool a_is_packed = false;  // it was written before
  const char* b = nullptr;   // b_panels panels, b_panel_bytes apart
  int64_t b_panels = 0;
  int64_t b_panel_bytes = 0;
  int64_t first_depth_block = 0, depth_blocks = 0;
  int64_t first_a_panel = 0, first_b_panel = 0;  // of the result
};

// Lines to fetch while a block is multiplied, so many for each block of k. A kernel may leave some.
struct Fetch {
  const char* b = nullptr;  // of the B that comes next, from farther away
  int64_t b_lines = 0;
  const char* a = nullptr;  // of the A to be packed next, in 32 pieces each; null if it is packed
  int64_t a_row = 0, a_block = 0;  // bytes from piece to piece, and to the next block of k
  char* out = nullptr;             // of the result's rows, to be written soon
  int64_t out_stride = 0;
  int64_t out_rows = 0;
  int64_t out_bytes = 0;  // of a row
};

// The sums of a block: four tiles of 16 x 16, the two of a tile row side by side.
inline constexpr int64_t kTileFloats = 16 * 16;
inline constexpr int64_t kBlockFloats = 4 * kTileFloats;

// How an instruction set multiplies a panel of A by a panel of B.
struct BlockKernel {
  // sums (+)= a b over `blocks` blocks of k; `from` is null where the sum begins. Only the first
  // `rows` rows of the sums are wanted.
  void (*multiply)(const char* a, const char* b, int64_t blocks, int64_t rows, const float* from,
                   float* to, Fetch fetch);
  void (*begin)();      // on a thread, before it multiplies
  void (*end)();        // and after
  int64_t part_blocks;  // of k, whose panel of B stays in the first-level cache
  int64_t a_bytes;      // of A that a thread keeps in its second-level cache
  int64_t b_bytes;      // of B that is packed at a time where it is used but once
  bool b_past_caches;   // whether B is packed so (panel_pack.h) where it is used again and again
};

// The calling thread may multiply with the kernel while a BlockScope lives.
class BlockScope {
 public:
  explicit BlockScope(const BlockKernel& kernel) : kernel_(kernel) { kernel_.begin(); }
  ~BlockScope() { kernel_.end(); }
  BlockScope(const BlockScope&) = delete;
  BlockScope& operator=(const BlockScope&) = delete;

 private:
  const BlockKernel& kernel_;
};

// Bytes of scratch that multiply_panels needs for up to `a_panels` panels of A.
int64_t multiply_scratch_bytes(int64_t a_panels);

// Multiplies on the calling thread, within a BlockScope. `scratch` is 64-byte aligned.
void multiply_panels(const BlockKernel& kernel, const PanelBlock& block, const Epilogue& epilogue,
                     float* scratch);

}  // namespace dstrain
