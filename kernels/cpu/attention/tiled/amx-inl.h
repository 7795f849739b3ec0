// Products of tiles on AMX. Included by amx.cpp, inside its target region.
// GCC 12's tile intrinsics do not tell the compiler which memory they read. So fence() must stand between
// ordinary stores and the tile loads that read them.
#pragma once

#include "kernels/cpu/attention/tiled/types-inl.h"

namespace dstrain::attention::amx {

// The sizes of the eight AMX tiles, in the memory layout that the LDTILECFG instruction reads.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

inline void fence() {
  asm volatile("" : : : "memory");
}

// Configures the calling thread's tiles for its lifetime. Afterwards the tiles are released, so that the
// operating system need not save them at a context switch.
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

// c (32 x 32) = a (32 x 32*steps) b, or c += a b with `add`.
inline void product_2x2(TilePair a, TilePair b, int64_t steps, const TileSums& c, bool add) {
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
