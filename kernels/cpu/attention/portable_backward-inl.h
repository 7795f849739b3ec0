// The backward pass of the portable implementation. Included once per Highway target.
//
// For each head, with P = exp(score - lse), the dropout mask M and the scale c of kept weights:
//   d_v = c (M P)^T d_y,  dS = P (c M (d_y v^T) - delta),  delta = sum(d_y y),
//   d_q = dS k / divisor, d_k = dS^T q / divisor.
// With a limit dS is multiplied by the slope of tanh too.
// The block products compute with dS / c; the factor c is applied to their sums at the end.
// Invariant: d_q of a block is summed over ascending key blocks, d_k and d_v over the heads of queries that see the head
// of keys, in order, and for each over ascending query blocks, however the work is divided.
#if defined(DSTRAIN_ATTENTION_PORTABLE_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DSTRAIN_ATTENTION_PORTABLE_BACKWARD_INL_H_
#undef DSTRAIN_ATTENTION_PORTABLE_BACKWARD_INL_H_
#else
#define DSTRAIN_ATTENTION_PORTABLE_BACKWARD_INL_H_
#endif

#include "kernels/cpu/attention/portable_common-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dstrain::attention::HWY_NAMESPACE {

// The arrays that the backward pass of one head uses. They lie in the scratch memory of the calling thread.
struct BackwardScratch {
  float *key_panels, *value_panels, *keys, *queries, *d_y;  // of a whole head
  float *d_q, *d_k, *d_v;  // sums: d_q of a whole head, d_k and d_v of key_sum_rows
  float *weights, *d_scores, *exponent, *delta;
  uint64_t* bits;

  BackwardScratch(const AttentionShape& shape, ScratchLayout& layout) {
    const int64_t width = padded_size(shape), padded = round_up(shape.seq, kPanel);
    key_panels = layout.add<float>(padded * shape.head_size);
    value_panels = layout.add<float>(padded * shape.head_size);
    keys = layout.add<float>(padded * width);
    queries = layout.add<float>(padded * width);
    d_y = layout.add<float>(padded * width);
    d_q = layout.add<float>(padded * width);
    d_k = layout.add<float>(key_sum_rows(shape, kKeyBlock) * width);
    d_v = layout.add<float>(key_sum_rows(shape, kKeyBlock) * width);
    weights = layout.add<float>(kQueryBlock * kKeyBlock);
    d_scores = layout.add<float>(kQueryBlock * kKeyBlock);
    exponent = layout.add<float>(padded);
    delta = layout.add<float>(padded);
    bits = layout.add<uint64_t>(kQueryBlock * kMaskStride);
  }
};

// Computes the backward pass of one head of queries, with its head of keys.
struct BackwardPass {
  const AttentionShape& shape;
  const Operands& o;
  const HeadOffsets at;
  const BackwardScratch s;
  const int64_t width;
  const SeenKeys keys;

  // Packs the operands of the block products that all heads of queries of the group share.
  void prepare_keys() const {
    const int64_t stride = shape.kv_stride();
    pack_rows(shape, o.in.v, at.kv, stride, shape.seq, s.keys);
    transpose_panels(shape, s.keys, 0, shape.seq, s.value_panels);
    pack_rows(shape, o.in.k, at.kv, stride, shape.seq, s.keys);
    transpose_panels(shape, s.keys, 0, shape.seq, s.key_panels);
  }

  // Packs the operands of this head of queries and computes delta / c and lse in units of log2.
  void prepare_queries() const {
    const F32 d;
    float* row = s.weights;  // holds nothing between two pairs of blocks
    pack_rows(shape, o.in.q, at.q, shape.q_stride(), shape.seq, s.queries);
    pack_rows(shape, o.d_y, at.y, shape.channels(), shape.seq, s.d_y);
    for (int64_t i = 0; i < shape.seq; ++i) {
      fetch_next_head<false>(o.y, at.y + i * shape.channels(), shape.head_size, shape.dtype);
      auto sum = hn::Zero(d);
      for (int64_t c = 0; c < width; c += kChunk) {
        const int64_t n = std::min(shape.head_size - c, kChunk);
        const int64_t padded = std::min(width - c, kChunk);
        widen_row(element(o.y, at.y + i * shape.channels() + c, shape.dtype), n, shape.dtype, row,
                  padded);
        for (int64_t v = 0; v < padded; v += kLanes32) {
          sum = hn::MulAdd(hn::LoadU(d, row + v), hn::LoadU(d, s.d_y + i * width + c + v), sum);
        }
      }
      s.delta[i] = hn::GetLane(hn::SumOfLanes(d, sum)) / shape.drop_scale;
      s.exponent[i] = o.lse[at.lse + i] * kLog2e;
    }
  }

  // In place: scores become weights M P, and d_y v^T becomes d_scores = dS / c.
  void softmax_gradient(const BlockPair& block) const {
    const F32 d;
    const auto scale = hn::Set(d, shape.exponent_scale());
    const auto inverse_limit =
        hn::Set(d, shape.limit > 0 ? static_cast<float>(1 / shape.limit) : 0.0f);
    const bool dropout = shape.drop_threshold > 0;
    for (int64_t r = 0; r < block.rows; ++r) {
      float* weights = s.weights + r * kKeyBlock;
      float* d_scores = s.d_scores + r * kKeyBlock;
      const uint64_t* bits = s.bits + r * kMaskStride;
      const auto shift = hn::Set(d, -s.exponent[block.query + r]);
      const auto delta = hn::Set(d, s.delta[block.query + r]);
      const int64_t from = block.seen_from_row(r), seen = block.seen_until_row(r);
      if (from >= seen) {
        clear_unseen(weights, 0, 0, block.columns);
        clear_unseen(d_scores, 0, 0, block.columns);
        continue;
      }
      if (shape.limit > 0) limit_scores(shape, weights, from, seen);
      // The slope of tanh at a score that it has limited.
      const auto slope = [&](V32 score) {
        const auto tanh = hn::Mul(score, inverse_limit);
        return hn::NegMulAdd(tanh, tanh, hn::Set(d, 1.0f));
      };
      const auto store = [&](int64_t c, V32 w, V32 g, V32 score) {
        auto dropped = w;
        if (dropout) {
          const auto kept = kept_lanes(bits, c);
          dropped = hn::IfThenElseZero(kept, w);
          g = hn::IfThenElseZero(kept, g);
        }
        hn::StoreU(dropped, d, weights + c);
        auto d_score = hn::Mul(w, hn::Sub(g, delta));
        if (shape.limit > 0) d_score = hn::Mul(d_score, slope(score));
        hn::StoreU(d_score, d, d_scores + c);
      };
      const auto weight = [&](int64_t c) {
        return exp2_of(hn::MulAdd(hn::LoadU(d, weights + c), scale, shift));
      };
      for_columns(
          from, seen,
          [&](int64_t c) {
            store(c, weight(c), hn::LoadU(d, d_scores + c), hn::LoadU(d, weights + c));
          },
          [&](int64_t c, hn::Mask<F32> mask) {
            store(c, hn::IfThenElseZero(mask, weight(c)),
                  hn::IfThenElseZero(mask, hn::LoadU(d, d_scores + c)),
                  hn::IfThenElseZero(mask, hn::LoadU(d, weights + c)));
          });
      clear_unseen(weights, from, seen, block.columns);
      clear_unseen(d_scores, from, seen, block.columns);
    }
  }

  // Returns where the sums of d_k or d_v from `key` on are, the first key of a block.
  float* key_sums(float* sums, int64_t key) const {
    return shape.group() == 1 ? sums : sums + key * width;
  }

  void add_key_sums(const BlockPair& block) const {
    float *d_v = key_sums(s.d_v, block.key), *d_k = key_sums(s.d_k, block.key);
    for (int64_t c = 0; c < block.columns; c += kTileRows) {
      const int64_t columns = std::min(kTileRows, block.columns - c);
      const int64_t first = block.first_row_of(c);
      const int64_t depth = block.end_row_of(c + columns - 1) - first;
      if (depth <= 0) continue;
      const int64_t from = first * kKeyBlock + c, query = (block.query + first) * width;
      strip(columns, {s.weights + from, 1, kKeyBlock}, {s.d_y + query, width},
            {d_v + c * width, width}, width / kLanes32, depth, Into::add);
      strip(columns, {s.d_scores + from, 1, kKeyBlock}, {s.queries + query, width},
            {d_k + c * width, width}, width / kLanes32, depth, Into::add);
    }
  }

  void add_query_sums(const BlockPair& block) const {
    for (int64_t r = 0; r < block.rows; r += kTileRows) {
      const int64_t rows = std::min(kTileRows, block.rows - r);
      const int64_t from = block.seen_from_row(r);
      const int64_t depth = block.seen_until_row(r + rows - 1) - from;
      if (depth <= 0) continue;
      strip(rows, {s.d_scores + r * kKeyBlock + from, kKeyBlock, 1},
            {s.keys + (block.key + from) * width, width},
            {s.d_q + (block.query + r) * width, width}, width / kLanes32, depth, Into::add);
    }
  }

  // Adds the sums of query block q and key block k; does nothing if no query sees a key.
  void pair(int64_t q, int64_t k, bool for_keys, bool for_queries) const {
    const int64_t query = q * kQueryBlock, rows = std::min(kQueryBlock, shape.seq - query);
    const int64_t key = k * kKeyBlock;
    const BlockPair block{query, rows, key, std::min(kKeyBlock, keys.end(query + rows - 1) - key),
                          keys};
    if (block.columns <= 0) return;
    seen_scores(shape, block, s.queries + query * width, s.key_panels, s.weights);
    seen_scores(shape, block, s.d_y + query * width, s.value_panels, s.d_scores);
    if (shape.drop_threshold > 0) block_mask(shape, o, at, block, s.bits);
    softmax_gradient(block);
    if (for_keys) add_key_sums(block);
    if (for_queries) add_query_sums(block);
  }

  // Writes rows of d_q, d_k or d_v, of which the first is element `at` of `to`.
  void store(const float* sums, int64_t rows, float factor, void* to, int64_t first,
             int64_t stride) const {
    for (int64_t r = 0; r < rows; ++r) {
      fetch_next_head<true>(to, first + r * stride, shape.head_size, shape.dtype);
      narrow_row(sums + r * width, shape.head_size, factor, shape.dtype,
                 element(to, first + r * stride, shape.dtype));
    }
  }

  // Adds to d_k and d_v of `key_blocks`, which the first head of queries sets to zero and the last one stores, and computes
  // d_q of `query_blocks`, with the same scores if `fused`.
  void run(Range key_blocks, Range query_blocks, bool fused, bool first, bool last) const {
    const float factor = static_cast<float>(shape.drop_scale / shape.divisor);
    const int64_t stride = shape.kv_stride();
    std::fill(s.d_q + query_blocks.begin * kQueryBlock * width,
              s.d_q + std::min(query_blocks.end * kQueryBlock, shape.seq) * width, 0.0f);
    for (int64_t k = key_blocks.begin; k < key_blocks.end; ++k) {
      const int64_t key = k * kKeyBlock, rows = std::min(kKeyBlock, shape.seq - key);
      float *d_k = key_sums(s.d_k, key), *d_v = key_sums(s.d_v, key);
      if (first) {
        std::fill_n(d_k, rows * width, 0.0f);
        std::fill_n(d_v, rows * width, 0.0f);
      }
      const int64_t end = end_query(keys, key, rows);
      for (int64_t b = keys.first_query(key) / kQueryBlock; b < divide_up(end, kQueryBlock); ++b)
        pair(b, k, true, fused);
      if (!last) continue;
      store(d_k, rows, factor, o.gradients.k, at.kv + key * stride, stride);
      store(d_v, rows, shape.drop_scale, o.gradients.v, at.kv + key * stride, stride);
    }
    for (int64_t b = query_blocks.begin; b < query_blocks.end; ++b) {
      const int64_t query = b * kQueryBlock, rows = std::min(kQueryBlock, shape.seq - query);
      const int64_t end = keys.end(query + rows - 1);
      for (int64_t k = keys.first(query) / kKeyBlock; !fused && k * kKeyBlock < end; ++k)
        pair(b, k, false, true);
      store(s.d_q + query * width, rows, factor, o.gradients.q, at.q + query * shape.q_stride(),
            shape.q_stride());
    }
  }

 private:
  static constexpr int64_t kChunk = 1024;
};

inline void backward(const AttentionShape& shape, const Operands& o, int64_t kv_head,
                     const GradPart& part, std::byte* scratch) {
  const int64_t blocks = divide_up(shape.seq, kQueryBlock), group = shape.group();
  for (int64_t member = 0; member < group; ++member) {
    ScratchLayout layout(scratch);
    const HeadOffsets at(shape, kv_head * group + member);
    const BackwardPass pass{shape,
                            o,
                            at,
                            BackwardScratch(shape, layout),
                            padded_size(shape),
                            seen_keys(shape, o, at.sample)};
    if (member == 0) pass.prepare_keys();
    const Range queries = blocks_of_member(part.query_blocks, member, blocks);
    if (part.key_blocks.empty() && queries.empty()) continue;
    pass.prepare_queries();
    pass.run(part.key_blocks, queries, part.fused, member == 0, member + 1 == group);
  }
}

}  // namespace dstrain::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
