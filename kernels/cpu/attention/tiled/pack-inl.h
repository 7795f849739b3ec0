// Copies a head's operands into the layouts that tiles load. Included by amx.cpp and dot.cpp, inside their target regions.
// Invariant: elements past the last row and past D are zero.
#pragma once

#include "kernels/cpu/attention/tiled/types-inl.h"
#include "kernels/cpu/attention/tiled/vectors-inl.h"

namespace dstrain::attention::DST_TILES {

// One head of an operand: `rows` rows of D elements, `stride` elements apart.
struct HeadRows {
  const bf16* data;
  int64_t stride, rows, size;

  __m512i load32(int64_t row, int64_t d) const {  // elements d .. d + 31
    if (row >= rows) return _mm512_setzero_si512();
    return _mm512_maskz_loadu_epi16(first_lanes32(size - d), data + row * stride + d);
  }
  __m256i load16(int64_t row, int64_t d) const {
    if (row >= rows) return _mm256_setzero_si256();
    return _mm256_maskz_loadu_epi16(first_lanes16(size - d), data + row * stride + d);
  }
  void fetch_next(int64_t row) const {
    fetch_next_head<false>(data, row * stride, size, DType::bf16);
  }
};

inline int64_t padded_size(const AttentionShape& shape) {
  return round_up(shape.head_size, kDepth);
}
inline int64_t padded_rows(int64_t rows) {
  return round_up(rows, kDepth);
}

// A operand, depth along D: out[d / 32][row][32], `count` rows from `first` on; a step of 32 takes `pitch` rows.
inline void pack_rows(const HeadRows& in, int64_t first, int64_t count, int64_t pitch,
                      std::byte* out) {
  for (int64_t d = 0; d < in.size; d += kDepth) {
    std::byte* step = out + d / kDepth * pitch * kRowBytes;
    for (int64_t r = 0; r < count; ++r) {
      if (d == 0) in.fetch_next(first + r);
      _mm512_storeu_si512(step + r * kRowBytes, in.load32(first + r, d));
    }
  }
}

// B operand, depth along D: out[row / 16][d / 32] tiles whose columns are rows of the operand, from row `first` on, a
// multiple of 32, as in the functions below.
inline void pack_columns(const HeadRows& in, int64_t first, std::byte* out) {
  out += first / kTile * divide_up(in.size, kDepth) * kTileBytes;
  for (int64_t row = first; row < padded_rows(in.rows); row += kTile) {
    for (int64_t i = 0; i < kTile; ++i) in.fetch_next(row + i);
    for (int64_t d = 0; d < in.size; d += kDepth) {
      __m512i r[16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) r[i] = in.load32(row + i, d);
      transpose(r);
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) _mm512_storeu_si512(out + i * kRowBytes, r[i]);
      out += kTileBytes;
    }
  }
}

// Loads rows [row, row + 32) of 16 columns from d on; each 32-bit element is a pair of neighbouring rows.
inline void load_pairs(const HeadRows& in, int64_t row, int64_t d, __m512i (&r)[16]) {
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    const __m512i even = _mm512_cvtepu16_epi32(in.load16(row + 2 * i, d));
    const __m512i odd = _mm512_cvtepu16_epi32(in.load16(row + 2 * i + 1, d));
    r[i] = _mm512_or_si512(even, _mm512_slli_epi32(odd, 16));
  }
}

// B operand, depth along rows: out[row / 32][d / 16] tiles.
inline void pack_pairs(const HeadRows& in, int64_t first, int64_t width, std::byte* out) {
  out += first / kDepth * (width / kTile) * kTileBytes;
  for (int64_t row = first; row < padded_rows(in.rows); row += kDepth) {
    for (int64_t i = 0; i < kDepth; ++i) in.fetch_next(row + i);
    for (int64_t d = 0; d < width; d += kTile) {
      __m512i r[16];
      load_pairs(in, row, d, r);
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) _mm512_storeu_si512(out + i * kRowBytes, r[i]);
      out += kTileBytes;
    }
  }
}

// A operand, transposed, depth along rows: out[row / 32][d / 16] tiles.
inline void pack_transposed(const HeadRows& in, int64_t width, std::byte* out) {
  for (int64_t row = 0; row < padded_rows(in.rows); row += kDepth) {
    for (int64_t d = 0; d < width; d += kTile) {
      __m512i r[16];
      load_pairs(in, row, d, r);
      transpose(r);
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) _mm512_storeu_si512(out + i * kRowBytes, r[i]);
      out += kTileBytes;
    }
  }
}

// Returns the first `rows` rows of one head of q, and of one of k or v.
inline HeadRows query_rows(const AttentionShape& shape, const Operands& o, const HeadOffsets& at,
                           int64_t rows) {
  return {static_cast<const bf16*>(o.in.q) + at.q, shape.q_stride(), rows, shape.head_size};
}
inline HeadRows kv_rows(const AttentionShape& shape, const void* k_or_v, const HeadOffsets& at,
                        int64_t rows) {
  return {static_cast<const bf16*>(k_or_v) + at.kv, shape.kv_stride(), rows, shape.head_size};
}

// The common part of one head's forward and backward pass. A Scratch is a struct of arrays in the thread's
// scratch memory.
template <class Scratch>
struct HeadPass {
  const AttentionShape& shape;
  const Operands& o;
  const HeadOffsets at;
  const Scratch s;
  const SeenKeys visible;
  const int64_t steps;  // D in steps of kDepth
  const float scale;    // AttentionShape::exponent_scale

  HeadPass(const AttentionShape& heads, const Operands& operands, int64_t head,
           ScratchLayout layout)
      : shape(heads),
        o(operands),
        at(heads, head),
        s(heads, layout),
        visible(seen_keys(heads, operands, at.sample)),
        steps(padded_size(heads) / kDepth),
        scale(heads.exponent_scale()) {}
};

}  // namespace dstrain::attention::DST_TILES
