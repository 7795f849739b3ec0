// The inner part of an AMX product: panels of A by panels of B (amx_pack.h), accumulated in f32 in
// ascending k, with the epilogue on the way out. Needs max_isa() == amx.
//
// A panel pair is a block of 32 x 32 in four accumulator tiles. The k of a block is walked in parts
// whose panel of B stays in the first-level cache while the panels of A stream past it.
#pragma once

#include <cstdint>

#include "kernels/cpu/products/amx_pack.h"

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

// Panels of A and B with all of their k, and where their block of the result begins.
struct PanelBlock {
  const char* a = nullptr;  // a_panels panels, depth_blocks * kBlockBytes apart
  int64_t a_panels = 0;
  const char* b = nullptr;  // b_panels panels, b_panel_bytes apart
  int64_t b_panels = 0;
  int64_t b_panel_bytes = 0;
  int64_t depth_blocks = 0;
  int64_t first_a_panel = 0, first_b_panel = 0;  // of the result
};

// Bytes of scratch that multiply_panels needs for up to `a_panels` panels of A.
int64_t multiply_scratch_bytes(int64_t a_panels);

// The calling thread's tile registers are set up while a TileScope lives.
class TileScope {
 public:
  TileScope();
  ~TileScope();
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
};

// Multiplies on the calling thread, within a TileScope. `scratch` is 64-byte aligned.
void multiply_panels(const PanelBlock& block, const Epilogue& epilogue, float* scratch);

}  // namespace dstrain
