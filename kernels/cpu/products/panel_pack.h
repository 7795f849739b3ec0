// The order in which bf16 products of our own read their operands: tiles of 16 x 64 bytes, zero where
// the matrix ends. Needs max_isa() >= avx512.
//
// An operand of a product is `extent` long in m or n and `depth` long in k. It is cut into panels of
// 32 along its extent; a panel holds, for each block of 32 in k, two tiles of 16 along the extent:
//   A tile: 16 rows (m) of 32 k
//   B tile: 16 rows (pairs of k) of 16 n, the two k of a pair side by side
#pragma once

#include <cstdint>

namespace dstrain {

inline constexpr int64_t kPanel = 32;       // along m or n
inline constexpr int64_t kDepthBlock = 32;  // along k
inline constexpr int64_t kTileBytes = 1024;
inline constexpr int64_t kBlockBytes = 2 * kTileBytes;  // of one panel and one block of k

constexpr int64_t panels_of(int64_t extent) {
  return (extent + kPanel - 1) / kPanel;
}
constexpr int64_t depth_blocks_of(int64_t depth) {
  return (depth + kDepthBlock - 1) / kDepthBlock;
}

// A bf16 operand as it lies in memory, row-major with `stride` elements a row.
struct TileSource {
  const uint16_t* data = nullptr;
  int64_t stride = 0;
  int64_t extent = 0;
  int64_t depth = 0;
  bool depth_major = false;  // stored (depth, extent), else (extent, depth)
};

struct PanelRange {
  int64_t first = 0, count = 0;              // panels
  int64_t first_block = 0, block_count = 0;  // blocks of k
};

// Writes the range's panels one after the other, `panel_bytes` apart, each block after block. `to` is
// 64-byte aligned. With `past_caches` lines go to memory without being read first: for many bytes.
void pack_a(const TileSource& source, const PanelRange& range, char* to, int64_t panel_bytes);
void pack_b(const TileSource& source, const PanelRange& range, char* to, int64_t panel_bytes,
            bool past_caches);

}  // namespace dstrain
