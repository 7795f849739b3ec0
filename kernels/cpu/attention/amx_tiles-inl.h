// Tiles: configuration, moves, and the one product loop. Part of amx.cpp, inside its target region.
// Every tile is 16 rows of 64 bytes. Operands are arrays of 1 KiB tiles unless a row stride is given:
//   A  16 rows x 32 depth
//   B  16 depth pairs x 16 columns x 2
//   C  16 rows x 16 columns, fp32
// Trap: GCC 12's tile intrinsics do not tell the compiler which memory they read, so a fence()
// stands between ordinary stores and the tile loads that need them.
#pragma once

namespace dstrain::attention::amx {

inline constexpr int64_t kTile = 16;   // rows of a tile; columns of a C tile
inline constexpr int64_t kDepth = 32;  // bf16 elements of a tile row
inline constexpr int64_t kTileBytes = 1024;
inline constexpr int64_t kRowBytes = 64;

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

inline void fence() {
  asm volatile("" : : : "memory");
}

// The calling thread's tiles are configured while this lives. Released tiles cost the kernel
// nothing at a switch of threads.
class TileScope {
 public:
  TileScope() {
    const TileConfig config;
    asm volatile("" : : "r"(&config) : "memory");
    _tile_loadconfig(&config);
  }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
  ~TileScope() { _tile_release(); }
};

struct Blocks2 {  // two tiles side by side: the addresses of both and the step to the next depth
  const std::byte *first, *second;
  int64_t step;  // bytes
  int64_t row = kRowBytes;
};

struct Sums2x2 {
  std::byte *c00, *c01, *c10, *c11;
  int64_t row = kRowBytes;
};

// c (32 x 32) = a (32 x 32*steps) b, or += where `add`.
inline void product_2x2(Blocks2 a, Blocks2 b, int64_t steps, const Sums2x2& c, bool add) {
  if (add) {
    _tile_loadd(0, c.c00, c.row);
    _tile_loadd(1, c.c01, c.row);
    _tile_loadd(2, c.c10, c.row);
    _tile_loadd(3, c.c11, c.row);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t k = 0; k < steps; ++k) {
    _tile_loadd(4, a.first, a.row);
    _tile_loadd(6, b.first, b.row);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b.second, b.row);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a.second, a.row);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    a.first += a.step;
    a.second += a.step;
    b.first += b.step;
    b.second += b.step;
  }
  _tile_stored(0, c.c00, c.row);
  _tile_stored(1, c.c01, c.row);
  _tile_stored(2, c.c10, c.row);
  _tile_stored(3, c.c11, c.row);
}

}  // namespace dstrain::attention::amx
