// The inner part of a bf16 product: multiplies panels of A by panels of B (panel_pack.h), accumulates in f32 in
// ascending k, and applies the epilogue to finished sums. Requires max_isa() >= avx512_bf16.
//
// A panel of A and a panel of B give a block of 32 x 32. Only the multiplication of a block depends on the
// instruction set (amx_block.h, dot_block.h). k is divided into parts whose panel of B stays in the first-level
// cache while all panels of A are multiplied with it.
#pragma once

#include <cstdint>

#include "kernels/cpu/products/panel_pack.h"

namespace dstrain {

// The operations on the result of a product, done as each element is finished. The sum s of element (i, j) goes
// through s += add[i, j]; s += bias[j]; relu; then s is rounded to bf16 or written as f32. Matrices are m by n,
// row-major, with rows `stride` elements apart.
struct Epilogue {
  const float* add = nullptr;
  const uint16_t* bias = nullptr;  // bf16
  bool relu = false;
  float* out_f32 = nullptr;  // exactly one of the outputs is set
  uint16_t* out_bf16 = nullptr;
  int64_t stride = 0;  // of add and out
  int64_t m = 0, n = 0;
};

// Panels of A and B over a range of k, and the position of their block in the result.
struct PanelBlock {
  TileSource a;
  int64_t a_panels = 0;
  char* packed_a =
      nullptr;  // a_panels panels, depth_blocks * kBlockBytes apart; written by multiply_panels
  bool a_is_packed = false;  // packed_a holds A already
  const char* b = nullptr;   // b_panels panels, b_panel_bytes apart
  int64_t b_panels = 0;
  int64_t b_panel_bytes = 0;
  int64_t first_depth_block = 0, depth_blocks = 0;
  int64_t first_a_panel = 0, first_b_panel = 0;  // position in the result
};

// Cache lines to prefetch while a block is multiplied, per block of k. A block kernel may ignore some.
struct Fetch {
  const char* b = nullptr;  // the next B, from a farther cache or memory
  int64_t b_lines = 0;
  const char* a = nullptr;  // the A to be packed next, 32 rows per block of k; null if it is packed
  int64_t a_row = 0, a_block = 0;  // bytes from row to row, and to the next block of k
  char* out = nullptr;             // rows of the result that are written next
  int64_t out_stride = 0;
  int64_t out_rows = 0;
  int64_t out_bytes = 0;  // per row
};

// The sums of a block: four tiles of 16 x 16; the two tiles of the upper half come first.
inline constexpr int64_t kTileFloats = 16 * 16;
inline constexpr int64_t kBlockFloats = 4 * kTileFloats;

// Multiplies a panel of A by a panel of B with one instruction set.
struct BlockKernel {
  // to = from + a b over `blocks` blocks of k; a null `from` stands for zeros. Only the first `rows` rows of the
  // sums need to be computed.
  void (*multiply)(const char* a, const char* b, int64_t blocks, int64_t rows, const float* from,
                   float* to, Fetch fetch);
  void (*begin)();      // called on a thread before it multiplies
  void (*end)();        // and afterwards
  int64_t part_blocks;  // blocks of k whose panel of B stays in the first-level cache
  int64_t a_bytes;      // bytes of A that a thread keeps in its second-level cache
  int64_t b_bytes;      // bytes of B that are packed at a time if B is used once
  bool b_past_caches;   // `past_caches` of pack_b if B is used more than once
};

// Calls begin and end of a block kernel on the calling thread.
class BlockScope {
 public:
  explicit BlockScope(const BlockKernel& kernel) : kernel_(kernel) { kernel_.begin(); }
  ~BlockScope() { kernel_.end(); }
  BlockScope(const BlockScope&) = delete;
  BlockScope& operator=(const BlockScope&) = delete;

 private:
  const BlockKernel& kernel_;
};

// Returns the bytes of scratch memory that multiply_panels needs for up to `a_panels` panels of A.
int64_t multiply_scratch_bytes(int64_t a_panels);

// Multiplies on the calling thread, which must have a BlockScope. `scratch` must be 64-byte aligned.
void multiply_panels(const BlockKernel& kernel, const PanelBlock& block, const Epilogue& epilogue,
                     float* scratch);

}  // namespace dstrain
