#include "kernels/cpu/products/panel_pack.h"

#include <immintrin.h>

#include <algorithm>

#define DST_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq")))

namespace dstrain {
namespace {

constexpr int kRows = 16;     // rows of a tile
constexpr int kTileRow = 64;  // bytes

// Returns a mask of the first n of 32 lanes; n may be negative or larger than 32.
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

template <bool past_caches>
DST_AVX512 inline void store(char* to, __m512i line) {
  if constexpr (past_caches) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), line);
  } else {
    _mm512_store_si512(to, line);
  }
}

// Packs two tiles from 32 rows (m or n) of 32 elements along k.
template <bool transposed, bool past_caches>
DST_AVX512 inline void pack_rows(const TileSource& s, int64_t at, int64_t depth, char* to) {
  constexpr int64_t kAhead = 8 * kDepthBlock;
  const __mmask32 mask = first_lanes(s.depth - depth);
  for (int tile = 0; tile < 2; ++tile, at += kRows, to += kTileBytes) {
    const uint16_t* from = s.data + at * s.stride + depth;
    const int64_t rows = std::min<int64_t>(kRows, s.extent - at);
    __m512i r[kRows];
    for (int i = 0; i < kRows; ++i) {
      _mm_prefetch(from + i * s.stride + kAhead, _MM_HINT_T1);
      r[i] =
          i < rows ? _mm512_maskz_loadu_epi16(mask, from + i * s.stride) : _mm512_setzero_si512();
    }
    if constexpr (transposed) transpose(r);
    for (int i = 0; i < kRows; ++i) store<past_caches>(to + i * kTileRow, r[i]);
  }
}

// Rows 2i and 2i + 1 of 32 rows along k, zero past the end of the matrix.
struct RowPair {
  __m512i even, odd;
};
DST_AVX512 inline RowPair load_pair(const uint16_t* from, int64_t stride, int i, int64_t rows,
                                    __mmask32 mask) {
  const __m512i zero = _mm512_setzero_si512();
  const uint16_t* row = from + 2 * i * stride;
  return {2 * i < rows ? _mm512_maskz_loadu_epi16(mask, row) : zero,
          2 * i + 1 < rows ? _mm512_maskz_loadu_epi16(mask, row + stride) : zero};
}

// Packs two tiles of B: the two elements of a pair of rows are adjacent, in the order of columns.
template <bool past_caches>
DST_AVX512 inline void pack_pairs(const TileSource& s, int64_t at, int64_t depth, char* to) {
  const uint16_t* from = s.data + depth * s.stride + at;
  const __mmask32 mask = first_lanes(s.extent - at);
  const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
  const __m512i second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  for (int i = 0; i < kRows; ++i) {
    const RowPair pair = load_pair(from, s.stride, i, s.depth - depth, mask);
    const __m512i low = _mm512_unpacklo_epi16(pair.even, pair.odd);
    const __m512i high = _mm512_unpackhi_epi16(pair.even, pair.odd);
    _mm_prefetch(from + (2 * i + kDepthBlock) * s.stride, _MM_HINT_T1);
    _mm_prefetch(from + (2 * i + 1 + kDepthBlock) * s.stride, _MM_HINT_T1);
    char* row = to + i * kTileRow;
    store<past_caches>(row, _mm512_permutex2var_epi64(low, first, high));
    store<past_caches>(row + kTileBytes, _mm512_permutex2var_epi64(low, second, high));
  }
}

// Packs two tiles of A: the same pairs, transposed. Interleaving gives groups of four columns in the order
// 0, 2, 4, 6 (low) and 1, 3, 5, 7 (high), so each row is stored at its column's place.
DST_AVX512 inline void pack_pairs_transposed(const TileSource& s, int64_t at, int64_t depth,
                                             char* to) {
  const uint16_t* from = s.data + depth * s.stride + at;
  const __mmask32 mask = first_lanes(s.extent - at);
  for (int high = 0; high < 2; ++high) {
    __m512i r[kRows];
    for (int i = 0; i < kRows; ++i) {
      const RowPair pair = load_pair(from, s.stride, i, s.depth - depth, mask);
      r[i] = high ? _mm512_unpackhi_epi16(pair.even, pair.odd)
                  : _mm512_unpacklo_epi16(pair.even, pair.odd);
      _mm_prefetch(from + (2 * i + high + kDepthBlock) * s.stride, _MM_HINT_T1);
    }
    transpose(r);
    for (int i = 0; i < kRows; ++i) {
      const int column = i / 4 * 8 + 4 * high + i % 4;  // 0 to 31: a row of one of the two tiles
      _mm512_store_si512(to + column * kTileRow, r[i]);
    }
  }
}

// Calls pack_block(source, first m or n, first k, tiles) for each block of the range, in the order of the
// source's memory.
template <class PackBlock>
void for_each_block(const TileSource& s, const PanelRange& range, char* to, int64_t panel_bytes,
                    PackBlock pack_block) {
  const int64_t outer = s.depth_major ? range.block_count : range.count;
  const int64_t inner = s.depth_major ? range.count : range.block_count;
  for (int64_t i = 0; i < outer; ++i) {
    for (int64_t j = 0; j < inner; ++j) {
      const int64_t panel = s.depth_major ? j : i, block = s.depth_major ? i : j;
      pack_block(s, (range.first + panel) * kPanel, (range.first_block + block) * kDepthBlock,
                 to + panel * panel_bytes + block * kBlockBytes);
    }
  }
}

}  // namespace

void pack_a(const TileSource& source, const PanelRange& range, char* to, int64_t panel_bytes) {
  for_each_block(source, range, to, panel_bytes,
                 source.depth_major ? pack_pairs_transposed : pack_rows<false, false>);
}

void pack_b(const TileSource& source, const PanelRange& range, char* to, int64_t panel_bytes,
            bool past_caches) {
  if (past_caches) {
    for_each_block(source, range, to, panel_bytes,
                   source.depth_major ? pack_pairs<true> : pack_rows<true, true>);
    _mm_sfence();  // non-temporal stores are not ordered with later stores
  } else {
    for_each_block(source, range, to, panel_bytes,
                   source.depth_major ? pack_pairs<false> : pack_rows<true, false>);
  }
}

}  // namespace dstrain
