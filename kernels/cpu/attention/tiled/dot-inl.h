// Products of tiles with VDPBF16PS, on vector registers. Included by dot.cpp, inside its target region.
#pragma once

#include "kernels/cpu/attention/tiled/types-inl.h"

namespace dstrain::attention::dot {

// AMX needs both of these; a product on vectors needs neither: it has no state, and its loads are the compiler's.
inline void fence() {}
struct TileScope {
  TileScope() {}  // so that an object of it counts as used
};

// Eight rows of 2 x 2 tiles; with the 32 columns their sums take 16 registers.
inline constexpr int kStripRows = 8;

inline __m512i spread_pair(const std::byte* pair) {
  int32_t bits;
  std::memcpy(&bits, pair, sizeof(bits));
  return _mm512_set1_epi32(bits);
}

// The rows of one strip: `a` is its first row of A, `left` and `right` its first rows of sums.
inline void product_strip(const std::byte* a, int64_t a_step, int64_t a_row, TilePair b,
                          int64_t steps, std::byte* left, std::byte* right, int64_t c_row,
                          bool add) {
  __m512 l[kStripRows], r[kStripRows];
#pragma GCC unroll 8
  for (int i = 0; i < kStripRows; ++i) {
    l[i] = add ? _mm512_load_ps(left + i * c_row) : _mm512_setzero_ps();
    r[i] = add ? _mm512_load_ps(right + i * c_row) : _mm512_setzero_ps();
  }
  for (int64_t k = 0; k < steps; ++k) {
#pragma GCC unroll 4
    for (int64_t pair = 0; pair < kTile; ++pair) {
      const __m512i b_left = _mm512_load_si512(b.first + pair * kRowBytes);
      const __m512i b_right = _mm512_load_si512(b.second + pair * kRowBytes);
#pragma GCC unroll 8
      for (int i = 0; i < kStripRows; ++i) {
        const __m512i both = spread_pair(a + i * a_row + pair * 4);
        l[i] = _mm512_dpbf16_ps(l[i], (__m512bh)both, (__m512bh)b_left);
        r[i] = _mm512_dpbf16_ps(r[i], (__m512bh)both, (__m512bh)b_right);
      }
    }
    a += a_step;
    b.first += b.step;
    b.second += b.step;
  }
#pragma GCC unroll 8
  for (int i = 0; i < kStripRows; ++i) {
    _mm512_store_ps(left + i * c_row, l[i]);
    _mm512_store_ps(right + i * c_row, r[i]);
  }
}

// c (32 x 32) = a (32 x 32*steps) b, or c += a b with `add`. Rows of b are kRowBytes apart.
inline void product_2x2(TilePair a, TilePair b, int64_t steps, const TileSums& c, bool add) {
  for (int64_t row = 0; row < kTile; row += kStripRows) {
    product_strip(a.first + row * a.row, a.step, a.row, b, steps, c.c00 + row * c.row,
                  c.c01 + row * c.row, c.row, add);
  }
  for (int64_t row = 0; row < kTile; row += kStripRows) {
    product_strip(a.second + row * a.row, a.step, a.row, b, steps, c.c10 + row * c.row,
                  c.c11 + row * c.row, c.row, add);
  }
}

}  // namespace dstrain::attention::dot
