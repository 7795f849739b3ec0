// The forward pass on tiles. Included by amx.cpp and dot.cpp, inside their target regions.
//
// A row's weights are 2^(exponent - m), where m is an integer near the row's running maximum. m is raised only
// when a block's maximum exceeds it by more than 8, so rescaling is rare, and it is exact. y is divided by the sum of the
// rounded weights: where one weight is nearly all of a row, its rounding would else be an error of all elements of y in the
// same direction, which delta of the backward pass, their product with d_y, does not average out.
#pragma once

#include "kernels/cpu/attention/tiled/pack-inl.h"

namespace dstrain::attention::DST_TILES {

inline constexpr int64_t kForwardQueries = 64, kForwardKeys = 256;
inline constexpr int64_t kScoreRow = kForwardKeys * 4 + 64;  // bytes: an odd number of cache lines
inline constexpr int64_t kForwardMaskRow = mask_words(kForwardKeys);
inline constexpr float kSlack = 8;

// The arrays that the forward pass of one head uses. They lie in the scratch memory of the calling thread.
struct ForwardScratch {
  std::byte *keys, *values, *queries, *scores, *sums;
  float *total, *rounded_total, *magic_minus_m, *limit;
  uint64_t* bits;

  ForwardScratch(const AttentionShape& shape, ScratchLayout& layout) {
    const int64_t width = padded_size(shape), rows = padded_rows(shape.seq);
    keys = layout.add<std::byte>(rows * width * 2);
    values = layout.add<std::byte>(rows * width * 2);
    queries = layout.add<std::byte>(kForwardQueries * width * 2);
    scores = layout.add<std::byte>(kForwardQueries * kScoreRow);
    sums = layout.add<std::byte>(kForwardQueries * width * 4);  // [d / 16][row][16]
    total = layout.add<float>(kForwardQueries * 16);            // of weights, one sum per lane
    rounded_total = layout.add<float>(kForwardQueries * 16);    // the same of rounded ones
    magic_minus_m = layout.add<float>(kForwardQueries);
    limit = layout.add<float>(kForwardQueries);  // a larger score raises m
    bits = layout.add<uint64_t>(kForwardQueries * kForwardMaskRow);
  }
};

// Computes the forward pass of one head, for a range of its query blocks.
struct ForwardPass : HeadPass<ForwardScratch> {
  using HeadPass::HeadPass;

  // Computes the scores of rows [row, row + 32) of the block with keys [key + from, key + until).
  void scores_of(int64_t row, int64_t key, int64_t from, int64_t until) const {
    const std::byte* q = s.queries + row * kRowBytes;
    for (int64_t n = from; n < until; n += 2 * kTile) {
      const std::byte* k = s.keys + (key + n) / kTile * steps * kTileBytes;
      std::byte* c = s.scores + row * kScoreRow + n * 4;
      product_2x2(
          {q, q + kTileBytes, kForwardQueries * kRowBytes}, {k, k + steps * kTileBytes, kTileBytes},
          steps,
          {c, c + kRowBytes, c + kTile * kScoreRow, c + kTile * kScoreRow + kRowBytes, kScoreRow},
          false);
    }
  }

  void values_of(int64_t row, int64_t key, int64_t from, int64_t until) const {
    const std::byte* a = s.scores + row * kScoreRow + from / kDepth * kRowBytes;
    for (int64_t d = 0; d < 2 * steps; d += 2) {
      const std::byte* b = s.values + ((key + from) / kDepth * 2 * steps + d) * kTileBytes;
      std::byte* c = s.sums + (d * kForwardQueries + row) * kRowBytes;
      std::byte* next = c + kForwardQueries * kRowBytes;
      product_2x2({a, a + kTile * kScoreRow, kRowBytes, kScoreRow},
                  {b, b + kTileBytes, 2 * steps * kTileBytes}, (until - from) / kDepth,
                  {c, next, c + kTileBytes, next + kTileBytes}, true);
    }
  }

  void raise(int64_t row, __m512 largest) const {
    const float m = std::ceil(_mm512_reduce_max_ps(largest) * scale);
    const float old_m = kRoundMagic - s.magic_minus_m[row];
    s.magic_minus_m[row] = kRoundMagic - m;
    s.limit[row] = (m + kSlack) / scale;
    const __m512 factor = _mm512_scalef_ps(_mm512_set1_ps(1), _mm512_set1_ps(old_m - m));
    for (float* total : {s.total + row * 16, s.rounded_total + row * 16})
      _mm512_store_ps(total, _mm512_mul_ps(_mm512_load_ps(total), factor));
    for (int64_t d = 0; d < 2 * steps; ++d) {
      std::byte* sum = s.sums + (d * kForwardQueries + row) * kRowBytes;
      _mm512_store_ps(sum, _mm512_mul_ps(_mm512_load_ps(sum), factor));
    }
  }

  // Replaces the scores of a row by weights: chunks [first, chunks) of 32 keys, of the first one only the keys in
  // `first_seen`, of the last one those in `last_seen`, at least one.
  void softmax_row(int64_t row, int64_t first, int64_t chunks, __mmask32 first_seen,
                   __mmask32 last_seen) const {
    if (first + 1 == chunks) last_seen &= first_seen;
    std::byte* at_row = s.scores + row * kScoreRow;
    const auto score = [&](int64_t vector) { return _mm512_load_ps(at_row + vector * kRowBytes); };
    const auto low = static_cast<__mmask16>(last_seen);
    const auto high = static_cast<__mmask16>(last_seen >> 16);
    const __m512 lowest = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
    __m512 largest = _mm512_mask_mov_ps(lowest, low, score(2 * chunks - 2));
    __m512 largest2 = _mm512_mask_mov_ps(lowest, high, score(2 * chunks - 1));
    for (int64_t c = first; c + 1 < chunks; ++c) {
      const __mmask32 seen = c == first ? first_seen : 0xffffffffu;
      largest = _mm512_mask_max_ps(largest, static_cast<__mmask16>(seen), largest, score(2 * c));
      largest2 = _mm512_mask_max_ps(largest2, static_cast<__mmask16>(seen >> 16), largest2,
                                    score(2 * c + 1));
    }
    largest = _mm512_max_ps(largest, largest2);
    if (_mm512_cmp_ps_mask(largest, _mm512_set1_ps(s.limit[row]), _CMP_GT_OQ)) raise(row, largest);

    const __m512 scale_v = _mm512_set1_ps(scale);
    const __m512 shift = _mm512_set1_ps(s.magic_minus_m[row]);
    const auto* kept = reinterpret_cast<const uint32_t*>(s.bits + row * kForwardMaskRow);
    const bool dropout = shape.drop_threshold > 0;
    float *total = s.total + row * 16, *rounded_total = s.rounded_total + row * 16;
    __m512 sum = _mm512_load_ps(total), sum2 = _mm512_setzero_ps();
    __m512 rounded_sum = _mm512_load_ps(rounded_total);
    const auto weigh = [&](int64_t c, __mmask32 seen) {
      const __m512 a = exp2_minus_integer(score(2 * c), scale_v, shift);
      const __m512 b = exp2_minus_integer(score(2 * c + 1), scale_v, shift);
      sum = _mm512_mask_add_ps(sum, static_cast<__mmask16>(seen), sum, a);
      sum2 = _mm512_mask_add_ps(sum2, static_cast<__mmask16>(seen >> 16), sum2, b);
      const __m512i rounded = round_pair(seen, a, b);
      rounded_sum = _mm512_add_ps(rounded_sum, sum_of_pairs(rounded));
      _mm512_store_si512(at_row + c * kRowBytes,
                         dropout ? _mm512_maskz_mov_epi16(kept[c], rounded) : rounded);
    };
    for (int64_t c = first; c + 1 < chunks; ++c) weigh(c, c == first ? first_seen : 0xffffffffu);
    weigh(chunks - 1, last_seen);
    _mm512_store_ps(total, _mm512_add_ps(sum, sum2));
    _mm512_store_ps(rounded_total, rounded_sum);
  }

  // Sets the weights of chunks [from, until) of a row to zero.
  void clear_weights(int64_t row, int64_t from, int64_t until) const {
    for (int64_t c = from; c < until; ++c)
      _mm512_store_si512(s.scores + row * kScoreRow + c * kRowBytes, _mm512_setzero_si512());
  }

  void block(int64_t query, int64_t rows, int64_t key) const {
    const int64_t keys = std::min(kForwardKeys, padded_rows(visible.end(query + rows - 1)) - key);
    if (shape.drop_threshold > 0) {
      fill_mask_rows(mask_of(shape, o, at, query, rows, key, keys, s.bits, kForwardMaskRow));
    }
    for (int64_t row = 0; row < rows; row += kDepth) {
      // The first key that row r of the 32 sees, and the end of those that it sees, from `key` on.
      const auto first_of = [&](int64_t r) {
        return std::max<int64_t>(visible.first(query + row + r) - key, 0);
      };
      const auto end_of = [&](int64_t r) { return visible.end(query + row + r) - key; };
      const int64_t from = first_of(0) / kDepth * kDepth;
      const int64_t until = std::min(keys, padded_rows(end_of(kDepth - 1)));
      if (until <= from) continue;
      scores_of(row, key, from, until);
      for (int64_t r = 0; r < std::min(kDepth, rows - row); ++r) {
        const int64_t begin = first_of(r);
        if (begin < until) {
          softmax_row(row + r, begin / kDepth, until / kDepth, ~first_lanes32(begin % kDepth),
                      first_lanes32(end_of(r) - (until - kDepth)));
        }
        clear_weights(row + r, from / kDepth, std::min(begin, until) / kDepth);
      }
      fence();
      values_of(row, key, from, until);
    }
  }

  void store(int64_t query, int64_t rows) const {
    for (int64_t r = 0; r < rows; ++r) {
      const float total = _mm512_reduce_add_ps(_mm512_load_ps(s.total + r * 16));
      const float m = kRoundMagic - s.magic_minus_m[r];
      o.lse[at.lse + query + r] =
          static_cast<float>(m * 0.6931471805599453 + std::log(double{total}));
      const __m512 factor = _mm512_set1_ps(
          shape.drop_scale / _mm512_reduce_add_ps(_mm512_load_ps(s.rounded_total + r * 16)));
      bf16* y = static_cast<bf16*>(o.y) + at.y + (query + r) * shape.channels();
      fetch_next_head<true>(y, 0, shape.head_size, DType::bf16);
      for (int64_t d = 0; d < shape.head_size; d += kTile) {
        const std::byte* sum = s.sums + (d / kTile * kForwardQueries + r) * kRowBytes;
        _mm256_mask_storeu_epi16(y + d, first_lanes16(shape.head_size - d),
                                 round_result(_mm512_mul_ps(_mm512_load_ps(sum), factor)));
      }
    }
  }

  // Returns the first key block that queries from `query` on see.
  int64_t first_key_block(int64_t query) const { return visible.first(query) / kForwardKeys; }

  void run(Range query_blocks) const {
    const int64_t keys = visible.end(std::min(query_blocks.end * kForwardQueries, shape.seq) - 1);
    const int64_t first = first_key_block(query_blocks.begin * kForwardQueries) * kForwardKeys;
    pack_columns(kv_rows(shape, o.in.k, at, keys), first, s.keys);
    pack_pairs(kv_rows(shape, o.in.v, at, keys), first, steps * kDepth, s.values);
    for (int64_t q = query_blocks.begin; q < query_blocks.end; ++q) {
      const int64_t query = q * kForwardQueries,
                    rows = std::min(kForwardQueries, shape.seq - query);
      pack_rows(query_rows(shape, o, at, shape.seq), query, kForwardQueries, kForwardQueries,
                s.queries);
      std::memset(s.sums, 0, static_cast<size_t>(kForwardQueries * steps * kDepth * 4));
      std::fill_n(s.total, rows * 16, 0.0f);
      std::fill_n(s.rounded_total, rows * 16, 0.0f);
      std::fill_n(s.limit, rows, -std::numeric_limits<float>::infinity());
      std::fill_n(s.magic_minus_m, rows, std::numeric_limits<float>::infinity());
      fence();
      const int64_t end = visible.end(query + rows - 1);
      for (int64_t key = first_key_block(query) * kForwardKeys; key < end; key += kForwardKeys)
        block(query, rows, key);
      store(query, rows);
    }
  }
};

inline void forward(const AttentionShape& shape, const Operands& o, int64_t head,
                    Range query_blocks, std::byte* scratch) {
  const ForwardPass pass(shape, o, head, ScratchLayout(scratch));
  const TileScope tiles;
  pass.run(query_blocks);
}

}  // namespace dstrain::attention::DST_TILES
