// Packs the operands of bf16 products into panels of tiles: a tile is 16 rows of 64 bytes, with zeros past the end
// of the matrix. Requires max_isa() >= avx512.
//
// An operand has `extent` elements along m or n and `depth` elements along k. It is divided into panels of 32
// along its extent. For each block of 32 along k a panel has two tiles of 16 along the extent:
//   A tile: 16 rows (m) of 32 k
//   B tile: 16 rows (pairs of k) of 16 n, the two k of a pair side by side
#pragma once

#include <cstdint>

namespace dstrain {

inline constexpr int64_t kPanel = 32;       // along m or n
inline constexpr int64_t kDepthBlock = 32;  // along k
inline constexpr int64_t kTileBytes = 1024;
inline constexpr int64_t kBlockBytes = 2 * kTileBytes;  // one panel's bytes in one block of k

constexpr int64_t panels_of(int64_t extent) {
  return (extent + kPanel - 1) / kPanel;
}
constexpr int64_t depth_blocks_of(int64_t depth) {
  return (depth + kDepthBlock - 1) / kDepthBlock;
}

// A bf16 operand in memory: row-major, rows `stride` elements apart.
struct TileSource {
  const uint16_t* data = nullptr;
  int64_t stride = 0;
  int64_t extent = 0;
  int64_t depth = 0;
  bool depth_major = false;  // stored as (depth, extent), else as (extent, depth)
};

// The part of an operand that is packed: a range of its panels, and a range of the blocks of k in them.
struct PanelRange {
  int64_t first = 0, count = 0;              // panels
  int64_t first_block = 0, block_count = 0;  // blocks of k
};

// Writes the range's panels `panel_bytes` apart, each with its blocks of k in order. `to` must be 64-byte aligned.
// `past_caches` uses non-temporal stores, for packed operands larger than the caches.
void pack_a(const TileSource& source, const PanelRange& range, char* to, int64_t panel_bytes);
void pack_b(const TileSource& source, const PanelRange& range, char* to, int64_t panel_bytes,
            bool past_caches);

}  // namespace dstrain
