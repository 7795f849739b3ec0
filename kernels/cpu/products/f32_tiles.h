// The inner part of an f32 product: register tiles of the result, each element summed in ascending k. Operands
// are packed into panels first, so that a tile reads both contiguously.
//
// A panel of A holds f32_tile_rows() rows, a panel of B f32_tile_columns() columns. For each k, the elements of all
// rows or columns are contiguous, with zeros past the end of the matrix; a panel of A holds each element
// f32_copies_of_a() times. These sizes depend on the instruction set; the order of additions does not.
#pragma once

#include <cstdint>

namespace dstrain {

int64_t f32_tile_rows();
int64_t f32_tile_columns();
int64_t f32_copies_of_a();

// A part of a row-major matrix whose rows are `stride` elements apart: `extent` rows of A or columns of B, and
// `depth` values of k. It is stored as (depth, extent) if `depth_major`, else as (extent, depth).
struct F32Source {
  const float* data = nullptr;
  int64_t stride = 0;
  int64_t extent = 0;
  int64_t depth = 0;
  bool depth_major = false;
};

// Writes the source's panels one after the other; a panel has `depth` times its width elements, one of A its copies.
void pack_f32_a(const F32Source& a, float* to);
void pack_f32_b(const F32Source& b, float* to);

// The arguments of multiply_f32(): c (rows, columns) = a b, or c += a b with `add`, over `depth` values of k.
struct F32Tiles {
  const float* a = nullptr;  // one panel
  const float* b = nullptr;  // panels
  int64_t rows = 0, columns = 0, depth = 0;
  float* c = nullptr;
  int64_t stride = 0;  // of c
  bool add = false;
  F32Source next_a;  // the panel of A that follows, of the same depth; none with an `extent` of 0
  float* packed_next = nullptr;  // where the panel is packed
};
// Computes a row of tiles and packs the next panel of A, where possible between the multiplications.
void multiply_f32(const F32Tiles& tiles);

}  // namespace dstrain
