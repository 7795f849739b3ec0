#include "kernels/cpu/products/amx_pack.h"

#include <immintrin.h>

#include <algorithm>

#define DST_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq")))

namespace dstrain {
namespace {

constexpr int kRows = 16;  // of a tile

// The first min(max(n, 0), 32) lanes.
uint32_t first_lanes(int64_t n) {
  if (n >= 32) return 0xffffffffu;
  return n <= 0 ? 0u : (1u << n) - 1;
}

// Transposes 16 x 16 elements of 32 bits.
DST_AVX512 inline void transpose(__m512i* r) {
  __m512i t[kRows];
  for (int i = 0; i < kRows; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < kRows; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
  for (int i = 0; i < 8; ++i) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
  }
}

// Sixteen rows of 32 elements of depth.
DST_AVX512 inline void load_rows(const TileSource& s, int64_t at, int64_t depth, __m512i* r) {
  const uint16_t* from = s.data + at * s.stride + depth;
  const __mmask32 mask = first_lanes(s.depth - depth);
  const int64_t rows = std::min<int64_t>(kRows, s.extent - at);
  for (int i = 0; i < kRows; ++i) {
    r[i] = i < rows ? _mm512_maskz_loadu_epi16(mask, from + i * s.stride) : _mm512_setzero_si512();
  }
}

// Sixteen pairs of rows of depth, the two elements of a pair side by side.
DST_AVX512 inline void load_pairs(const TileSource& s, int64_t at, int64_t depth, __m512i* r) {
  const uint16_t* from = s.data + depth * s.stride + at;
  const auto mask = static_cast<__mmask16>(first_lanes(s.extent - at));
  const int64_t rows = s.depth - depth;
  for (int i = 0; i < kRows; ++i) {
    const uint16_t* row = from + 2 * i * s.stride;
    __m512i even = _mm512_setzero_si512(), odd = _mm512_setzero_si512();
    if (2 * i < rows) even = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, row));
    if (2 * i + 1 < rows) {
      odd = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, row + s.stride));
    }
    r[i] = _mm512_or_si512(even, _mm512_slli_epi32(odd, 16));
  }
}

template <bool depth_major, bool transposed>
DST_AVX512 inline void pack_tile(const TileSource& s, int64_t at, int64_t depth, char* to) {
  __m512i r[kRows];
  if constexpr (depth_major) {
    load_pairs(s, at, depth, r);
  } else {
    load_rows(s, at, depth, r);
  }
  if constexpr (transposed) transpose(r);
  for (int i = 0; i < kRows; ++i) _mm512_store_si512(to + i * 64, r[i]);
}

template <bool depth_major, bool transposed>
DST_AVX512 inline void pack_block(const TileSource& s, const PanelRange& range, int64_t panel,
                                  int64_t block, char* to, int64_t panel_bytes) {
  const int64_t at = (range.first + panel) * kPanel;
  const int64_t depth = (range.first_block + block) * kDepthBlock;
  char* tiles = to + panel * panel_bytes + block * kBlockBytes;
  pack_tile<depth_major, transposed>(s, at, depth, tiles);
  pack_tile<depth_major, transposed>(s, at + kPanel / 2, depth, tiles + kTileBytes);
}

// Whatever is contiguous in the source is read in one go: rows of k, or rows of m or n.
template <bool is_a>
DST_AVX512 void pack(const TileSource& s, const PanelRange& range, char* to, int64_t panel_bytes) {
  if (s.depth_major) {
    for (int64_t block = 0; block < range.block_count; ++block) {
      for (int64_t panel = 0; panel < range.count; ++panel) {
        pack_block<true, is_a>(s, range, panel, block, to, panel_bytes);
      }
    }
  } else {
    for (int64_t panel = 0; panel < range.count; ++panel) {
      for (int64_t block = 0; block < range.block_count; ++block) {
        pack_block<false, !is_a>(s, range, panel, block, to, panel_bytes);
      }
    }
  }
}

}  // namespace

void pack_a(const TileSource& source, const PanelRange& range, char* to, int64_t panel_bytes) {
  pack<true>(source, range, to, panel_bytes);
}

void pack_b(const TileSource& source, const PanelRange& range, char* to, int64_t panel_bytes) {
  pack<false>(source, range, to, panel_bytes);
}

}  // namespace dstrain
