// The tiles of bf16 attention, and the operands of a product of tiles. Included by amx.cpp and dot.cpp, each with a
// namespace DST_TILES of its own, inside their target regions.
// Every tile has 16 rows of 64 bytes. Operands are arrays of 1 KiB tiles unless a row stride is given:
//   A  16 rows x 32 depth
//   B  16 depth pairs x 16 columns x 2
//   C  16 rows x 16 columns, fp32
#pragma once

namespace dstrain::attention::DST_TILES {

inline constexpr int64_t kTile = 16;   // rows of a tile; columns of a C tile
inline constexpr int64_t kDepth = 32;  // bf16 elements of a tile row
inline constexpr int64_t kTileBytes = 1024;
inline constexpr int64_t kRowBytes = 64;

// Two neighbouring operand tiles at depth 0.
struct TilePair {
  const std::byte *first, *second;
  int64_t step;             // bytes to the tiles of the next depth
  int64_t row = kRowBytes;  // bytes from one tile row to the next
};

// 2 x 2 tiles of sums.
struct TileSums {
  std::byte *c00, *c01, *c10, *c11;
  int64_t row = kRowBytes;
};

}  // namespace dstrain::attention::DST_TILES
