// The backward pass of the portable implementation. Included once per Highway target.
//
// For each head, with P = exp(score - lse), the dropout mask M and the scale c of kept weights:
//   d_v = c (M P)^T d_y,  dS = P (c M (d_y v^T) - delta),  delta = sum(d_y y),
//   d_q = dS k / sqrt(D), d_k = dS^T q / sqrt(D).
// The block products compute with dS / c; the factor c is applied to their sums at the end.
// Invariant: d_q of a block is summed over ascending key blocks, d_k and d_v over ascending query blocks,
// however the work is divided.
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
  float *d_q, *d_k, *d_v;  // sums: d_q of a whole head, d_k and d_v of a key block
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
    d_k = layout.add<float>(kKeyBlock * width);
    d_v = layout.add<float>(kKeyBlock * width);
    weights = layout.add<float>(kQueryBlock * kKeyBlock);
    d_scores = layout.add<float>(kQueryBlock * kKeyBlock);
    exponent = layout.add<float>(padded);
    delta = layout.add<float>(padded);
    bits = layout.add<uint64_t>(kQueryBlock * kMaskStride);
  }
};

// Computes the backward pass of one head: prepare() packs the operands, run() computes the gradients.
struct BackwardPass {
  const AttentionShape& shape;
  const Operands& o;
  const HeadOffsets at;
  const BackwardScratch s;
  const int64_t width;

  // Packs the operands of the block products and computes delta / c and lse in units of log2.
  void prepare() const {
    const F32 d;
    const int64_t stride = shape.qkv_stride();
    float* row = s.weights;  // not used before the first block
    pack_rows(shape, o.qkv, at.qkv + 2 * shape.channels(), stride, shape.seq, s.keys);
    transpose_panels(shape, s.keys, shape.seq, s.value_panels);
    pack_rows(shape, o.qkv, at.qkv + shape.channels(), stride, shape.seq, s.keys);
    transpose_panels(shape, s.keys, shape.seq, s.key_panels);
    pack_rows(shape, o.qkv, at.qkv, stride, shape.seq, s.queries);
    pack_rows(shape, o.d_y, at.y, shape.channels(), shape.seq, s.d_y);
    for (int64_t i = 0; i < shape.seq; ++i) {
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
    const bool dropout = shape.drop_threshold > 0;
    for (int64_t r = 0; r < block.rows; ++r) {
      float* weights = s.weights + r * kKeyBlock;
      float* d_scores = s.d_scores + r * kKeyBlock;
      const uint64_t* bits = s.bits + r * kMaskStride;
      const auto shift = hn::Set(d, -s.exponent[block.query + r]);
      const auto delta = hn::Set(d, s.delta[block.query + r]);
      const int64_t seen = block.seen_until_row(r);
      int64_t c = 0;
      for (; c < seen; c += kLanes32) {
        auto w = exp2_of(hn::MulAdd(hn::LoadU(d, weights + c), scale, shift));
        auto g = hn::LoadU(d, d_scores + c);
        if (c + kLanes32 > seen) {
          const auto valid = hn::FirstN(d, static_cast<size_t>(seen - c));
          w = hn::IfThenElseZero(valid, w);
          g = hn::IfThenElseZero(valid, g);
        }
        auto dropped = w;
        if (dropout) {
          const auto kept = kept_lanes(bits, c);
          dropped = hn::IfThenElseZero(kept, w);
          g = hn::IfThenElseZero(kept, g);
        }
        hn::StoreU(dropped, d, weights + c);
        hn::StoreU(hn::Mul(w, hn::Sub(g, delta)), d, d_scores + c);
      }
      for (; c < block.columns; c += kLanes32) {
        hn::StoreU(hn::Zero(d), d, weights + c);
        hn::StoreU(hn::Zero(d), d, d_scores + c);
      }
    }
  }

  void add_key_sums(const BlockPair& block) const {
    for (int64_t c = 0; c < block.columns; c += kTileRows) {
      const int64_t columns = std::min(kTileRows, block.columns - c);
      const int64_t first = block.first_row_of(c), depth = block.rows - first;
      if (depth <= 0) break;
      const int64_t from = first * kKeyBlock + c, query = (block.query + first) * width;
      strip(columns, {s.weights + from, 1, kKeyBlock}, {s.d_y + query, width},
            {s.d_v + c * width, width}, width / kLanes32, depth, Into::add);
      strip(columns, {s.d_scores + from, 1, kKeyBlock}, {s.queries + query, width},
            {s.d_k + c * width, width}, width / kLanes32, depth, Into::add);
    }
  }

  void add_query_sums(const BlockPair& block) const {
    for (int64_t r = 0; r < block.rows; r += kTileRows) {
      const int64_t rows = std::min(kTileRows, block.rows - r);
      strip(rows, {s.d_scores + r * kKeyBlock, kKeyBlock, 1}, {s.keys + block.key * width, width},
            {s.d_q + (block.query + r) * width, width}, width / kLanes32,
            block.seen_until_row(r + rows - 1), Into::add);
    }
  }

  // Adds the sums of query block q and key block k; does nothing if no query sees a key.
  void pair(int64_t q, int64_t k, bool for_keys, bool for_queries) const {
    const int64_t query = q * kQueryBlock, key = k * kKeyBlock;
    const BlockPair block{query, std::min(kQueryBlock, shape.seq - query), key,
                          std::min(kKeyBlock, std::min(shape.seq, query + kQueryBlock) - key)};
    if (block.columns <= 0) return;
    causal_scores(shape, block, s.queries + query * width, s.key_panels, s.weights);
    causal_scores(shape, block, s.d_y + query * width, s.value_panels, s.d_scores);
    if (shape.drop_threshold > 0) block_mask(shape, o, at, block, s.bits);
    softmax_gradient(block);
    if (for_keys) add_key_sums(block);
    if (for_queries) add_query_sums(block);
  }

  // Writes rows of d_q, d_k or d_v (part 0, 1, 2).
  void store(int64_t part, const float* sums, int64_t first, int64_t rows, float factor) const {
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t to = at.qkv + part * shape.channels() + (first + r) * shape.qkv_stride();
      narrow_row(sums + r * width, shape.head_size, factor, shape.dtype,
                 element(o.d_qkv, to, shape.dtype));
    }
  }

  void run(const GradPart& part) const {
    const float factor =
        static_cast<float>(shape.drop_scale / std::sqrt(static_cast<double>(shape.head_size)));
    const int64_t query_blocks = divide_up(shape.seq, kQueryBlock);
    const Range q = part.query_blocks;
    std::fill(s.d_q + q.begin * kQueryBlock * width,
              s.d_q + std::min(q.end * kQueryBlock, shape.seq) * width, 0.0f);
    for (int64_t k = part.key_blocks.begin; k < part.key_blocks.end; ++k) {
      const int64_t key = k * kKeyBlock, rows = std::min(kKeyBlock, shape.seq - key);
      std::fill_n(s.d_k, rows * width, 0.0f);
      std::fill_n(s.d_v, rows * width, 0.0f);
      for (int64_t b = key / kQueryBlock; b < query_blocks; ++b) pair(b, k, true, part.fused);
      store(1, s.d_k, key, rows, factor);
      store(2, s.d_v, key, rows, shape.drop_scale);
    }
    for (int64_t b = q.begin; b < q.end; ++b) {
      const int64_t query = b * kQueryBlock, rows = std::min(kQueryBlock, shape.seq - query);
      for (int64_t k = 0; !part.fused && k * kKeyBlock < query + rows; ++k) {
        pair(b, k, false, true);
      }
      store(0, s.d_q + query * width, query, rows, factor);
    }
  }

 private:
  static constexpr int64_t kChunk = 1024;
};

inline void backward(const AttentionShape& shape, const Operands& o, int64_t head,
                     const GradPart& part, std::byte* scratch) {
  ScratchLayout layout(scratch);
  const BackwardPass pass{shape, o, HeadOffsets(shape, head), BackwardScratch(shape, layout),
                          padded_size(shape)};
  pass.prepare();
  pass.run(part);
}

}  // namespace dstrain::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
