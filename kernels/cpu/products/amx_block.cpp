#include "kernels/cpu/products/amx_block.h"

#include <immintrin.h>

#define DST_AMX __attribute__((target("amx-tile,amx-bf16,avx512f")))

namespace dstrain {
namespace {

constexpr int kTileRow = 64;  // bytes

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

DST_AMX void configure_tiles() {
  TileConfig config;
  for (int i = 0; i < 8; ++i) {
    config.row_bytes[i] = kTileRow;
    config.rows[i] = 16;
  }
  // GCC 12 does not order the stores above before the load below by itself.
  asm volatile("" : : "r"(&config) : "memory");
  _tile_loadconfig(&config);
}

DST_AMX void release_tiles() {
  _tile_release();
}

// A is loaded with a non-temporal hint, so that B stays in the cache.
DST_AMX void multiply(const char* a, const char* b, int64_t blocks, int64_t /*rows*/,
                      const float* from, float* to, Fetch fetch) {
  if (from != nullptr) {
    _tile_loadd(0, from, kTileRow);
    _tile_loadd(1, from + kTileFloats, kTileRow);
    _tile_loadd(2, from + 2 * kTileFloats, kTileRow);
    _tile_loadd(3, from + 3 * kTileFloats, kTileRow);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t i = 0; i < blocks; ++i) {
    for (int64_t line = 0; line < fetch.b_lines; ++line, fetch.b += 64) {
      _mm_prefetch(fetch.b, _MM_HINT_T1);
    }
    for (int64_t row = 0; row < fetch.out_rows; ++row, fetch.out += fetch.out_stride) {
      for (int64_t at = 0; at < fetch.out_bytes; at += 64) __builtin_prefetch(fetch.out + at, 1);
    }
    _tile_stream_loadd(4, a, kTileRow);
    _tile_loadd(6, b, kTileRow);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + kTileBytes, kTileRow);
    _tile_dpbf16ps(1, 4, 7);
    _tile_stream_loadd(5, a + kTileBytes, kTileRow);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    a += kBlockBytes;
    b += kBlockBytes;
  }
  _tile_stored(0, to, kTileRow);
  _tile_stored(1, to + kTileFloats, kTileRow);
  _tile_stored(2, to + 2 * kTileFloats, kTileRow);
  _tile_stored(3, to + 3 * kTileFloats, kTileRow);
}

}  // namespace

const BlockKernel& amx_block() {
  static constexpr BlockKernel kernel{.multiply = multiply,
                                      .begin = configure_tiles,
                                      .end = release_tiles,
                                      .part_blocks = 16,  // 32 KiB
                                      .a_bytes = 1000 * 1024,
                                      .b_bytes = 64 * 1024 * 1024,
                                      .b_past_caches = false};
  return kernel;
}

}  // namespace dstrain
