// The backward pass on tiles; portable_backward-inl.h has the formulas. Included by amx.cpp and dot.cpp, inside their
// target regions. T x T matrices are transposed: a row belongs to one key, a vector to 16 queries.
// Invariant: d_q of a block is summed over ascending key blocks, d_k and d_v over the heads of queries that see the head
// of keys, in order, and for each over ascending query blocks, however the work is divided.
#pragma once

#include "kernels/cpu/attention/tiled/pack-inl.h"

namespace dstrain::attention::DST_TILES {

inline constexpr int64_t kQueries = 128, kKeys = 128;  // in a query block, in a key block
inline constexpr int64_t kSubBlock = 32;  // queries, or keys, whose weights are computed at once
inline constexpr int64_t kMaskRow = mask_words(kKeys);

// The arrays that the backward pass of one head uses. They lie in the scratch memory of the calling thread.
struct BackwardScratch {
  // Operands of a whole head, in the layouts that the products read.
  std::byte *key_rows, *value_rows, *keys_transposed;
  std::byte *query_columns, *d_y_columns, *query_pairs, *d_y_pairs;
  // Sums: d_q of a whole head [query / 32][half][d][16], d_k and d_v of the key blocks of key_sum_rows, of each
  // [d / 16][key][16].
  std::byte *d_q, *d_k, *d_v;
  // For a pair of blocks: weights and score gradients as A operands [query / 32][key][32], and the
  // score gradients as B operands [query / 32][key / 32][half].
  std::byte *weights, *d_scores, *d_score_pairs;
  std::byte *sub_scores, *sub_d_weights;  // of a sub-block: [half][key][16]
  float *shift, *delta;
  uint64_t* bits;
  int32_t* end_query;  // with documents, of each key: the end of the queries that see it

  BackwardScratch(const AttentionShape& shape, ScratchLayout& layout) {
    const int64_t width = padded_size(shape), rows = padded_rows(shape.seq);
    for (std::byte** operand : {&key_rows, &value_rows, &keys_transposed, &query_columns,
                                &d_y_columns, &query_pairs, &d_y_pairs}) {
      *operand = layout.add<std::byte>(rows * width * 2);
    }
    d_q = layout.add<std::byte>(rows * width * 4);
    d_k = layout.add<std::byte>(key_sum_rows(shape, kKeys) * width * 4);
    d_v = layout.add<std::byte>(key_sum_rows(shape, kKeys) * width * 4);
    for (std::byte** block : {&weights, &d_scores, &d_score_pairs}) {
      *block = layout.add<std::byte>(kQueries * kKeys * 2);
    }
    sub_scores = layout.add<std::byte>(kSubBlock * kSubBlock * 4);
    sub_d_weights = layout.add<std::byte>(kSubBlock * kSubBlock * 4);
    shift = layout.add<float>(rows);
    delta = layout.add<float>(rows);
    bits = layout.add<uint64_t>(kQueries * kMaskRow);
    end_query = layout.add<int32_t>(shape.documents ? rows : 0);
  }
};

// The queries of a sub-block that see a key of another one: all, those from the diagonal to the end of the window, those
// from the diagonal to the end of the window or of the document, or all if the key is one of the sample.
enum class Seen : uint8_t { all, window, documents, sample };

inline constexpr auto kBitOfKey = [] {
  std::array<uint32_t, 32> bits{};
  for (uint32_t k = 0; k < 32; ++k) bits[k] = 1u << k;
  return bits;
}();

// Computes the backward pass of one head of queries, with its head of keys.
struct BackwardPass : HeadPass<BackwardScratch> {
  using HeadPass::HeadPass;

  int64_t rows() const { return padded_rows(shape.seq); }

  // Packs the operands that all heads of queries of the group share.
  void prepare_keys() const {
    const HeadRows k = kv_rows(shape, o.in.k, at, shape.seq),
                   v = kv_rows(shape, o.in.v, at, shape.seq);
    pack_rows(k, 0, rows(), rows(), s.key_rows);
    pack_rows(v, 0, rows(), rows(), s.value_rows);
    pack_transposed(k, steps * kDepth, s.keys_transposed);
    if (!shape.documents) return;
    int64_t end = 0;
    for (int64_t j = 0; j < rows(); ++j) {
      while (end < shape.seq && visible.documents[end] <= j) ++end;
      s.end_query[j] = static_cast<int32_t>(std::min(j + shape.window, end));
    }
  }

  // Returns the end of the queries that see a key; it does not fall from one key to the next.
  int64_t end_query_of(int64_t key) const {
    return shape.documents ? s.end_query[std::min(key, rows() - 1)] : key + shape.window;
  }

  // Packs the operands of this head of queries.
  void prepare_queries() const {
    const int64_t width = steps * kDepth;
    const HeadRows q = query_rows(shape, o, at, shape.seq);
    const HeadRows d_y{static_cast<const bf16*>(o.d_y) + at.y, shape.channels(), shape.seq,
                       shape.head_size};
    const HeadRows y{static_cast<const bf16*>(o.y) + at.y, shape.channels(), shape.seq,
                     shape.head_size};
    pack_columns(q, 0, s.query_columns);
    pack_columns(d_y, 0, s.d_y_columns);
    pack_pairs(q, 0, width, s.query_pairs);
    pack_pairs(d_y, 0, width, s.d_y_pairs);
    for (int64_t i = 0; i < rows(); ++i) {
      y.fetch_next(i);
      __m512 sum = _mm512_setzero_ps();
      for (int64_t d = 0; d < shape.head_size; d += 16) {
        sum = _mm512_fmadd_ps(widen(d_y.load16(i, d)), widen(y.load16(i, d)), sum);
      }
      s.delta[i] = _mm512_reduce_add_ps(sum) / shape.drop_scale;
      // Queries past the end get weights of 2^-1e30 = 0.
      s.shift[i] = i < shape.seq ? -o.lse[at.lse + i] * 1.44269504088896341f : -1e30f;
    }
  }

  // Values of 16 queries that are the same for all keys.
  struct Lanes {
    __m512 shift, delta, minus_delta, scale;
    __m512i kept;  // bit k: whether dropout keeps the weight of key k of the sub-block
  };
  // The results for one key and 16 queries: the weights after dropout, and the gradients of the scores.
  struct Cell {
    __m512 weight, d_score;
  };

  template <bool kDropout>
  static Cell cell(const Lanes& lanes, __m512 score, __m512 d_weight, __mmask16 seen, int64_t key) {
    const __m512 w = exp2_shifted(score, lanes.scale, lanes.shift);
    if constexpr (!kDropout) {
      return {w, _mm512_maskz_mul_ps(seen, w, _mm512_sub_ps(d_weight, lanes.delta))};
    }
    const __mmask16 kept = _mm512_test_epi32_mask(
        lanes.kept, _mm512_set1_epi32(static_cast<int>(kBitOfKey[static_cast<size_t>(key)])));
    const __m512 g = _mm512_mask_sub_ps(lanes.minus_delta, kept, d_weight, lanes.delta);
    return {_mm512_maskz_mov_ps(kept, w), _mm512_maskz_mul_ps(seen, w, g)};
  }

  // Computes the weights and score gradients of 32 keys from `first` on x 32 queries from `query` on, from the scores
  // and d_y v^T.
  template <bool kDropout, Seen kSeen>
  void softmax_gradient(const Lanes (&lanes)[2], int64_t query, int64_t first, std::byte* weights,
                        std::byte* d_scores, std::byte* pairs) const {
    for (int64_t key = 0; key < kSubBlock; key += 2) {
      __m512i d_score[2];
#pragma GCC unroll 2
      for (int64_t odd = 0; odd < 2; ++odd) {
        const int64_t row = (key + odd) * kRowBytes, next = row + kSubBlock * kRowBytes;
        const int64_t diagonal = first - query + key + odd;
        __mmask32 by = 0xffffffffu;  // the queries that see the key
        if constexpr (kSeen == Seen::window)
          by = ~first_lanes32(diagonal) & first_lanes32(diagonal + shape.window);
        if constexpr (kSeen == Seen::documents)
          by = ~first_lanes32(diagonal) & first_lanes32(s.end_query[first + key + odd] - query);
        if constexpr (kSeen == Seen::sample) by = first + key + odd < shape.seq ? by : 0;
        const Cell a = cell<kDropout>(lanes[0], _mm512_load_ps(s.sub_scores + row),
                                      _mm512_load_ps(s.sub_d_weights + row),
                                      static_cast<__mmask16>(by), key + odd);
        const Cell b = cell<kDropout>(lanes[1], _mm512_load_ps(s.sub_scores + next),
                                      _mm512_load_ps(s.sub_d_weights + next),
                                      static_cast<__mmask16>(by >> 16), key + odd);
        _mm512_store_si512(weights + row, round_pair(by, a.weight, b.weight));
        d_score[odd] = round_pair(0xffffffffu, a.d_score, b.d_score);
        _mm512_store_si512(d_scores + row, d_score[odd]);
      }
      // Pairs of keys are interleaved; query_of() names the query of each column of the two tiles.
      std::byte* pair = pairs + key / 2 * kRowBytes;
      _mm512_store_si512(pair, _mm512_unpacklo_epi16(d_score[0], d_score[1]));
      _mm512_store_si512(pair + kTileBytes, _mm512_unpackhi_epi16(d_score[0], d_score[1]));
    }
  }
  template <bool kDropout>
  auto softmax_gradient_of(bool masked) const {
    if (!masked) return &BackwardPass::softmax_gradient<kDropout, Seen::all>;
    if (!shape.causal) return &BackwardPass::softmax_gradient<kDropout, Seen::sample>;
    return shape.documents ? &BackwardPass::softmax_gradient<kDropout, Seen::documents>
                           : &BackwardPass::softmax_gradient<kDropout, Seen::window>;
  }
  static int64_t query_of(int64_t half, int64_t column) {
    return column / 4 * 8 + half * 4 + column % 4;
  }

  // A query block and a key block of one head: the first row of each, and the number of its rows.
  struct Pair {
    const BackwardPass& pass;
    int64_t query, queries, key, keys;  // queries and keys in multiples of kSubBlock
    // The sub-blocks of queries that see keys of the sub-block from `k` on, and of keys that queries of the sub-block from
    // `q` on see: from the first to the end, in rows relative to the pair. None if the end is not above the first.
    int64_t first_query_of(int64_t k) const {
      return std::clamp<int64_t>(pass.visible.first_query(key + k) - query, 0, queries);
    }
    int64_t end_query_of(int64_t k) const {
      const int64_t end = pass.end_query_of(key + k + kSubBlock - 1) - query;
      return std::clamp<int64_t>(round_up(std::max<int64_t>(end, 0), kSubBlock), 0, queries);
    }
    int64_t first_key_of(int64_t q) const {
      const int64_t first = pass.visible.first(query + q) - key;
      return std::clamp<int64_t>(std::max<int64_t>(first, 0) / kSubBlock * kSubBlock, 0, keys);
    }
    int64_t end_key_of(int64_t q) const {
      return pass.shape.causal ? std::clamp<int64_t>(query + q + kSubBlock - key, 0, keys) : keys;
    }
  };

  void sub_block(const Pair& pair, int64_t q, int64_t k) const {
    const int64_t query = pair.query + q, key = pair.key + k;
    const int64_t columns = query / kTile * steps * kTileBytes, column_step = steps * kTileBytes;
    const auto scores = [&](const std::byte* a, const std::byte* b, std::byte* c) {
      a += key * kRowBytes;
      b += columns;
      product_2x2({a, a + kTileBytes, rows() * kRowBytes}, {b, b + column_step, kTileBytes}, steps,
                  {c, c + 2 * kTileBytes, c + kTileBytes, c + 3 * kTileBytes}, false);
    };
    scores(s.key_rows, s.query_columns, s.sub_scores);
    scores(s.value_rows, s.d_y_columns, s.sub_d_weights);

    Lanes lanes[2];
    for (int64_t half = 0; half < 2; ++half) {
      Lanes& l = lanes[half];
      const int64_t i = query + half * 16;
      l.scale = _mm512_set1_ps(scale);
      l.shift = _mm512_load_ps(s.shift + i);
      l.delta = _mm512_load_ps(s.delta + i);
      l.minus_delta = _mm512_sub_ps(_mm512_setzero_ps(), l.delta);
      const auto* words = reinterpret_cast<const uint32_t*>(s.bits + (q + half * 16) * kMaskRow);
      const __m512i row = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
      l.kept = _mm512_i32gather_epi32(_mm512_mullo_epi32(row, _mm512_set1_epi32(2 * kMaskRow)),
                                      words + k / 32, 4);
    }
    const int64_t rows_at = (q / kSubBlock * kKeys + k) * kRowBytes;
    std::byte* pairs =
        s.d_score_pairs + (q / kSubBlock * (kKeys / kSubBlock) + k / kSubBlock) * 2 * kTileBytes;
    const bool masked = shape.causal ? query == key || end_query_of(key) < query + kSubBlock
                                     : key + kSubBlock > shape.seq;
    const auto call = shape.drop_threshold > 0 ? softmax_gradient_of<true>(masked)
                                               : softmax_gradient_of<false>(masked);
    (this->*call)(lanes, query, key, s.weights + rows_at, s.d_scores + rows_at, pairs);
  }

  // Returns where the sums of d_k or d_v of the key block from `key` on are.
  std::byte* key_sums(std::byte* sums, int64_t key) const {
    return shape.group() == 1 ? sums : sums + key * steps * kDepth * 4;
  }

  void add_key_sums(const Pair& pair, int64_t k) const {
    const int64_t q = pair.first_query_of(k), depth = (pair.end_query_of(k) - q) / kSubBlock;
    const int64_t a = (q / kSubBlock * kKeys + k) * kRowBytes;
    for (int64_t d = 0; d < 2 * steps; d += 2) {
      const int64_t b = ((pair.query + q) / kDepth * 2 * steps + d) * kTileBytes;
      const int64_t c = (d * kKeys + k) * kRowBytes, next = c + kKeys * kRowBytes;
      const auto add = [&](const std::byte* left, const std::byte* right, std::byte* sum) {
        product_2x2({left + a, left + a + kTileBytes, kKeys * kRowBytes},
                    {right + b, right + b + kTileBytes, 2 * steps * kTileBytes}, depth,
                    {sum + c, sum + next, sum + c + kTileBytes, sum + next + kTileBytes}, true);
      };
      add(s.weights, s.d_y_pairs, key_sums(s.d_v, pair.key));
      add(s.d_scores, s.query_pairs, key_sums(s.d_k, pair.key));
    }
  }

  void add_query_sums(const Pair& pair, int64_t q) const {
    const int64_t k = pair.first_key_of(q), depth = (pair.end_key_of(q) - k) / kSubBlock;
    const std::byte* b =
        s.d_score_pairs + (q / kSubBlock * (kKeys / kSubBlock) + k / kSubBlock) * 2 * kTileBytes;
    for (int64_t d = 0; d < 2 * steps; d += 2) {
      const std::byte* a =
          s.keys_transposed + ((pair.key + k) / kDepth * 2 * steps + d) * kTileBytes;
      std::byte* c = s.d_q + ((pair.query + q) / kSubBlock * 4 * steps + d) * kTileBytes;
      std::byte* next = c + 2 * steps * kTileBytes;
      product_2x2({a, a + kTileBytes, 2 * steps * kTileBytes}, {b, b + kTileBytes, 2 * kTileBytes},
                  depth, {c, next, c + kTileBytes, next + kTileBytes}, true);
    }
  }

  void pair(int64_t query_block, int64_t key_block, bool for_keys, bool for_queries) const {
    const int64_t query = query_block * kQueries, key = key_block * kKeys;
    const int64_t end_key = shape.causal ? std::min(rows(), query + kQueries) : rows();
    const Pair pair{*this, query, std::min(kQueries, rows() - query), key,
                    std::min(kKeys, end_key - key)};
    if (pair.keys <= 0) return;
    if (shape.drop_threshold > 0) {
      fill_mask_rows(mask_of(shape, o, at, query, std::min(kQueries, shape.seq - query), key,
                             pair.keys, s.bits, kMaskRow));
    }
    for (int64_t q = 0; q < pair.queries; q += kSubBlock) {
      for (int64_t k = pair.first_key_of(q); k < pair.end_key_of(q); k += kSubBlock)
        sub_block(pair, q, k);
    }
    fence();
    for (int64_t k = 0; for_keys && k < pair.keys; k += kSubBlock) {
      if (pair.first_query_of(k) < pair.end_query_of(k)) add_key_sums(pair, k);
    }
    for (int64_t q = 0; for_queries && q < pair.queries; q += kSubBlock) {
      if (pair.first_key_of(q) < pair.end_key_of(q)) add_query_sums(pair, q);
    }
  }

  // Writes the rows of a key block from `key` on: sums times `factor`, to d_k or d_v.
  void store_keys(void* d_k_or_d_v, const std::byte* sums, int64_t key, float factor) const {
    const __m512 f = _mm512_set1_ps(factor);
    for (int64_t r = 0; r < std::min(kKeys, shape.seq - key); ++r) {
      bf16* row = static_cast<bf16*>(d_k_or_d_v) + at.kv + (key + r) * shape.kv_stride();
      fetch_next_head<true>(row, 0, shape.head_size, DType::bf16);
      for (int64_t d = 0; d < shape.head_size; d += kTile) {
        const __m512 sum = _mm512_load_ps(sums + (d / kTile * kKeys + r) * kRowBytes);
        _mm256_mask_storeu_epi16(row + d, first_lanes16(shape.head_size - d),
                                 round_result(_mm512_mul_ps(sum, f)));
      }
    }
  }

  void store_queries(int64_t query, float factor) const {
    const __m512 f = _mm512_set1_ps(factor);
    for (int64_t half = 0; half < 2; ++half) {
      for (int64_t d = 0; d < shape.head_size; d += kTile) {
        const std::byte* tile =
            s.d_q + ((query / kSubBlock * 2 + half) * 2 * steps + d / kTile) * kTileBytes;
        __m512i r[16];
        for (int i = 0; i < 16; ++i) r[i] = _mm512_load_si512(tile + i * kRowBytes);
        transpose(r);
        for (int i = 0; i < 16; ++i) {
          const int64_t row = query + query_of(half, i);
          if (row >= shape.seq) continue;
          const __m512 sum = _mm512_mul_ps(_mm512_castsi512_ps(r[i]), f);
          bf16* to = static_cast<bf16*>(o.gradients.q) + at.q + row * shape.q_stride();
          if (d == 0) fetch_next_head<true>(to, 0, shape.head_size, DType::bf16);
          _mm256_mask_storeu_epi16(to + d, first_lanes16(shape.head_size - d), round_result(sum));
        }
      }
    }
  }

  // Adds to d_k and d_v of `key_blocks`, which the first head of queries sets to zero and the last one stores, and computes
  // d_q of `query_blocks`, with the same scores if `fused`.
  void run(Range key_blocks, Range query_blocks, bool fused, bool first, bool last) const {
    const float factor = static_cast<float>(shape.drop_scale / shape.divisor);
    const int64_t width = steps * kDepth;
    const Range queries{query_blocks.begin * kQueries,
                        std::min(query_blocks.end * kQueries, rows())};
    if (!queries.empty()) {
      std::memset(s.d_q + queries.begin * width * 4, 0,
                  static_cast<size_t>((queries.end - queries.begin) * width * 4));
    }
    for (int64_t k = key_blocks.begin; k < key_blocks.end; ++k) {
      const int64_t key = k * kKeys;
      std::byte *d_k = key_sums(s.d_k, key), *d_v = key_sums(s.d_v, key);
      if (first) {
        std::memset(d_k, 0, static_cast<size_t>(kKeys * width * 4));
        std::memset(d_v, 0, static_cast<size_t>(kKeys * width * 4));
      }
      fence();
      const int64_t end = std::min(end_query_of(key + kKeys - 1), shape.seq);
      for (int64_t q = visible.first_query(key) / kQueries; q < divide_up(end, kQueries); ++q)
        pair(q, k, true, fused);
      if (!last) continue;
      store_keys(o.gradients.k, d_k, key, factor);
      store_keys(o.gradients.v, d_v, key, shape.drop_scale);
    }
    for (int64_t q = query_blocks.begin; !fused && q < query_blocks.end; ++q) {
      const int64_t end = visible.end(std::min((q + 1) * kQueries, shape.seq) - 1);
      for (int64_t k = visible.first(q * kQueries) / kKeys; k * kKeys < end; ++k)
        pair(q, k, false, true);
    }
    for (int64_t q = queries.begin; q < queries.end; q += kSubBlock) store_queries(q, factor);
  }
};

inline void backward(const AttentionShape& shape, const Operands& o, int64_t kv_head,
                     const GradPart& part, std::byte* scratch) {
  const int64_t blocks = divide_up(shape.seq, kQueries), group = shape.group();
  for (int64_t member = 0; member < group; ++member) {
    const BackwardPass pass(shape, o, kv_head * group + member, ScratchLayout(scratch));
    if (member == 0) pass.prepare_keys();
    const Range queries = blocks_of_member(part.query_blocks, member, blocks);
    if (part.key_blocks.empty() && queries.empty()) continue;
    pass.prepare_queries();
    const TileScope tiles;
    fence();
    pass.run(part.key_blocks, queries, part.fused, member == 0, member + 1 == group);
  }
}

}  // namespace dstrain::attention::DST_TILES
