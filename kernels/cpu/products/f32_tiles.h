// The inner part of an f32 product: tiles of the result, each element one chain of additions in ascending
// k. Operands are copied into panels first, so that a tile reads both of them straight through.
//
// A panel of A holds f32_tile_rows() rows, one of B f32_tile_columns() columns; for each k the numbers of
// all its rows or columns stand side by side, zeros where the matrix ends. Both sizes depend on the
// instruction set, the order of additions does not.
#pragma once

#include <cstdint>

namespace dstrain {

int64_t f32_tile_rows();
int64_t f32_tile_columns();

// A part of a row-major matrix with `stride` elements a row: `extent` rows of A or columns of B, over
// `depth` values of k. `depth_major`: stored (depth, extent), else (extent, depth).
struct F32Source {
  const float* data = nullptr;
  int64_t stride = 0;
  int64_t extent = 0;
  int64_t depth = 0;
  bool depth_major = false;
};

// Writes the source's panels one after the other, each `depth` times its width long.
void pack_f32_a(const F32Source& a, float* to);
void pack_f32_b(const F32Source& b, float* to);

// c (rows, columns) = a b, or c += a b, over `depth` values of k.
struct F32Tiles {
  const float* a = nullptr;  // panels
  const float* b = nullptr;
  int64_t rows = 0, columns = 0, depth = 0;
  float* c = nullptr;
  int64_t stride = 0;  // of c
  bool add = false;
};
void multiply_f32(const F32Tiles& tiles);

}  // namespace dstrain
