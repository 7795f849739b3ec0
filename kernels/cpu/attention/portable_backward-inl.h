// The backward pass of the portable body. Included once per Highway target.
//
// With P = exp(score - lse), M the kept weights and c their scale, per head:
//   d_v = c (M P)^T d_y,  dS = P (c M (d_y v^T) - delta),  delta = sum(d_y y),
//   d_q = dS k / sqrt(D), d_k = dS^T q / sqrt(D).
// c is taken out of the block products: dS/c is what they see, and c joins the final factor.
// Invariant: d_q of a block adds over ascending key blocks, d_k and d_v over ascending query blocks,
// in every division of the work.
#if defined(DSTRAIN_ATTENTION_PORTABLE_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DSTRAIN_ATTENTION_PORTABLE_BACKWARD_INL_H_
#undef DSTRAIN_ATTENTION_PORTABLE_BACKWARD_INL_H_
#else
#define DSTRAIN_ATTENTION_PORTABLE_BACKWARD_INL_H_
#endif

#include "kernels/cpu/attention/portable_common-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dstrain::attention::HWY_NAMESPACE {

struct BackwardScratch {
  float *key_panels, *value_panels, *keys, *queries, *d_y;  // of a whole head
  float *d_q, *d_k, *d_v;                                   // sums: of a whole head, of a key block
  float *weights, *d_scores, *exponent, *delta;
  uint64_t* bits;

  BackwardScratch(const Problem& p, Carver& carver) {
    const int64_t width = padded_size(p), padded = round_up(p.seq, kPanel);
    key_panels = carver.take<float>(padded * p.head_size);
    value_panels = carver.take<float>(padded * p.head_size);
    keys = carver.take<float>(padded * width);
    queries = carver.take<float>(padded * width);
    d_y = carver.take<float>(padded * width);
    d_q = carver.take<float>(padded * width);
    d_k = carver.take<float>(kKeyBlock * width);
    d_v = carver.take<float>(kKeyBlock * width);
    weights = carver.take<float>(kQueryBlock * kKeyBlock);
    d_scores = carver.take<float>(kQueryBlock * kKeyBlock);
    exponent = carver.take<float>(padded);
    delta = carver.take<float>(padded);
    bits = carver.take<uint64_t>(kQueryBlock * kMaskStride);
  }
};

struct BackwardPass {
  const Problem& p;
  const Operands& o;
  const HeadPlace at;
  const BackwardScratch s;
  const int64_t width;

  // Packs what the block products read, and finds delta / c and log2 of the softmax denominator.
  void prepare() const {
    const F32 d;
    const int64_t stride = p.qkv_stride();
    float* row = s.weights;  // free until the first block
    pack_rows(p, o.qkv, at.qkv + 2 * p.channels(), stride, p.seq, s.keys);
    transpose_panels(p, s.keys, p.seq, s.value_panels);
    pack_rows(p, o.qkv, at.qkv + p.channels(), stride, p.seq, s.keys);
    transpose_panels(p, s.keys, p.seq, s.key_panels);
    pack_rows(p, o.qkv, at.qkv, stride, p.seq, s.queries);
    pack_rows(p, o.d_y, at.y, p.channels(), p.seq, s.d_y);
    for (int64_t i = 0; i < p.seq; ++i) {
      auto sum = hn::Zero(d);
      for (int64_t c = 0; c < width; c += kChunk) {
        const int64_t n = std::min(p.head_size - c, kChunk);
        const int64_t padded = std::min(width - c, kChunk);
        widen_row(element(o.y, at.y + i * p.channels() + c, p.dtype), n, p.dtype, row, padded);
        for (int64_t v = 0; v < padded; v += kLanes32) {
          sum = hn::MulAdd(hn::LoadU(d, row + v), hn::LoadU(d, s.d_y + i * width + c + v), sum);
        }
      }
      s.delta[i] = hn::GetLane(hn::SumOfLanes(d, sum)) / p.drop_scale;
      s.exponent[i] = o.lse[at.lse + i] * kLog2e;
    }
  }

  // weights <- M P and d_scores <- dS / c, from scores and d_y v^T, in place.
  void softmax_gradient(const BlockPair& block) const {
    const F32 d;
    const auto scale = hn::Set(d, exponent_scale(p));
    const bool dropout = p.drop_threshold > 0;
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

  // Blocks of q and k that do not see each other are skipped.
  void pair(int64_t q, int64_t k, bool for_keys, bool for_queries) const {
    const int64_t query = q * kQueryBlock, key = k * kKeyBlock;
    const BlockPair block{query, std::min(kQueryBlock, p.seq - query), key,
                          std::min(kKeyBlock, std::min(p.seq, query + kQueryBlock) - key)};
    if (block.columns <= 0) return;
    causal_scores(p, block, s.queries + query * width, s.key_panels, s.weights);
    causal_scores(p, block, s.d_y + query * width, s.value_panels, s.d_scores);
    if (p.drop_threshold > 0) block_mask(p, o, at, block, s.bits);
    softmax_gradient(block);
    if (for_keys) add_key_sums(block);
    if (for_queries) add_query_sums(block);
  }

  // part 0, 1, 2: d_q, d_k, d_v.
  void store(int64_t part, const float* sums, int64_t first, int64_t rows, float factor) const {
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t to = at.qkv + part * p.channels() + (first + r) * p.qkv_stride();
      narrow_row(sums + r * width, p.head_size, factor, p.dtype, element(o.d_qkv, to, p.dtype));
    }
  }

  void run(const GradPart& part) const {
    const float factor =
        static_cast<float>(p.drop_scale / std::sqrt(static_cast<double>(p.head_size)));
    const int64_t query_blocks = divide_up(p.seq, kQueryBlock);
    const Range q = part.query_blocks;
    std::fill(s.d_q + q.begin * kQueryBlock * width,
              s.d_q + std::min(q.end * kQueryBlock, p.seq) * width, 0.0f);
    for (int64_t k = part.key_blocks.begin; k < part.key_blocks.end; ++k) {
      const int64_t key = k * kKeyBlock, rows = std::min(kKeyBlock, p.seq - key);
      std::fill_n(s.d_k, rows * width, 0.0f);
      std::fill_n(s.d_v, rows * width, 0.0f);
      for (int64_t b = key / kQueryBlock; b < query_blocks; ++b) pair(b, k, true, part.fused);
      store(1, s.d_k, key, rows, factor);
      store(2, s.d_v, key, rows, p.drop_scale);
    }
    for (int64_t b = q.begin; b < q.end; ++b) {
      const int64_t query = b * kQueryBlock, rows = std::min(kQueryBlock, p.seq - query);
      for (int64_t k = 0; !part.fused && k * kKeyBlock < query + rows; ++k) {
        pair(b, k, false, true);
      }
      store(0, s.d_q + query * width, query, rows, factor);
    }
  }

 private:
  static constexpr int64_t kChunk = 1024;
};

inline void backward(const Problem& p, const Operands& o, int64_t head, const GradPart& part,
                     std::byte* scratch) {
  Carver carver(scratch);
  const BackwardPass pass{p, o, HeadPlace(p, head), BackwardScratch(p, carver), padded_size(p)};
  pass.prepare();
  pass.run(part);
}

inline int64_t backward_bytes(const Problem& p) {
  Carver carver(nullptr);
  BackwardScratch(p, carver);
  return carver.bytes();
}

}  // namespace dstrain::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
