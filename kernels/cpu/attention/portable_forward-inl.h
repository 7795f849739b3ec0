// The forward pass of the portable implementation. Included once per Highway target.
#if defined(DSTRAIN_ATTENTION_PORTABLE_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DSTRAIN_ATTENTION_PORTABLE_FORWARD_INL_H_
#undef DSTRAIN_ATTENTION_PORTABLE_FORWARD_INL_H_
#else
#define DSTRAIN_ATTENTION_PORTABLE_FORWARD_INL_H_
#endif

#include <limits>

#include "kernels/cpu/attention/portable_common-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dstrain::attention::HWY_NAMESPACE {

// The arrays that the forward pass of one head uses. They lie in the scratch memory of the calling thread.
struct ForwardScratch {
  float *key_panels, *values, *queries, *scores, *sums, *max, *total;
  uint64_t* bits;

  ForwardScratch(const AttentionShape& shape, ScratchLayout& layout) {
    const int64_t width = padded_size(shape), keys = round_up(shape.seq, kPanel);
    key_panels = layout.add<float>(keys * shape.head_size);
    values = layout.add<float>(keys * width);
    queries = layout.add<float>(kQueryBlock * width);
    scores = layout.add<float>(kQueryBlock * kKeyBlock);
    sums = layout.add<float>(kQueryBlock * width);
    max = layout.add<float>(kQueryBlock);
    total = layout.add<float>(kQueryBlock);
    bits = layout.add<uint64_t>(kQueryBlock * kMaskStride);
  }
};

// Replaces a row of scores by weights after dropout, relative to the row's running maximum, and rescales the
// row's running total and sums to that maximum. The row sees columns [from, seen), at least one; all others become zero.
inline void softmax_row(const AttentionShape& shape, float* scores, int64_t from, int64_t seen,
                        int64_t columns, const uint64_t* bits, float& max, float& total,
                        float* sums) {
  const F32 d;
  const float scale = shape.exponent_scale();
  const auto lowest = hn::Set(d, -std::numeric_limits<float>::infinity());

  auto largest = lowest;
  for_columns(
      from, seen, [&](int64_t c) { largest = hn::Max(largest, hn::LoadU(d, scores + c)); },
      [&](int64_t c, hn::Mask<F32> mask) {
        largest = hn::Max(largest, hn::IfThenElse(mask, hn::LoadU(d, scores + c), lowest));
      });
  const float new_max = std::max(max, hn::GetLane(hn::MaxOfLanes(d, largest)) * scale);
  const auto shift = hn::Set(d, -new_max);
  const auto scale_v = hn::Set(d, scale);

  auto sum = hn::Zero(d);
  const auto weight = [&](int64_t c) {
    return exp2_of(hn::MulAdd(hn::LoadU(d, scores + c), scale_v, shift));
  };
  const auto store = [&](int64_t c, V32 w) {
    sum = hn::Add(sum, w);
    if (shape.drop_threshold > 0) w = hn::IfThenElseZero(kept_lanes(bits, c), w);
    hn::StoreU(w, d, scores + c);
  };
  for_columns(
      from, seen, [&](int64_t c) { store(c, weight(c)); },
      [&](int64_t c, hn::Mask<F32> mask) { store(c, hn::IfThenElseZero(mask, weight(c))); });
  clear_unseen(scores, from, seen, columns);

  const float block_total = hn::GetLane(hn::SumOfLanes(d, sum));
  if (new_max == max) {
    total += block_total;
    return;
  }
  const float correction = hn::GetLane(exp2_of(hn::Set(d, max - new_max)));
  max = new_max;
  total = total * correction + block_total;
  const auto factor = hn::Set(d, correction);
  for (int64_t i = 0; i < padded_size(shape); i += kLanes32) {
    hn::StoreU(hn::Mul(hn::LoadU(d, sums + i), factor), d, sums + i);
  }
}

inline void forward_block(const AttentionShape& shape, const Operands& o, const HeadOffsets& at,
                          const BlockPair& block, const ForwardScratch& s) {
  const int64_t width = padded_size(shape);
  seen_scores(shape, block, s.queries, s.key_panels, s.scores);
  if (shape.drop_threshold > 0) block_mask(shape, o, at, block, s.bits);
  for (int64_t r = 0; r < block.rows; ++r) {
    const int64_t from = block.seen_from_row(r), seen = block.seen_until_row(r);
    float* scores = s.scores + r * kKeyBlock;
    if (from < seen) {
      if (shape.limit > 0) limit_scores(shape, scores, from, seen);
      softmax_row(shape, scores, from, seen, block.columns, s.bits + r * kMaskStride, s.max[r],
                  s.total[r], s.sums + r * width);
    } else {
      clear_unseen(scores, 0, 0, block.columns);
    }
  }
  for (int64_t r = 0; r < block.rows; r += kTileRows) {
    const int64_t rows = std::min(kTileRows, block.rows - r), from = block.seen_from_row(r);
    const int64_t depth = block.seen_until_row(r + rows - 1) - from;
    if (depth <= 0) continue;
    strip(rows, {s.scores + r * kKeyBlock + from, kKeyBlock, 1},
          {s.values + (block.key + from) * width, width}, {s.sums + r * width, width},
          width / kLanes32, depth, Into::add);
  }
}

inline void forward(const AttentionShape& shape, const Operands& o, int64_t head,
                    Range query_blocks, std::byte* scratch) {
  ScratchLayout layout(scratch);
  const ForwardScratch s(shape, layout);
  const HeadOffsets at(shape, head);
  const int64_t width = padded_size(shape), stride = shape.kv_stride();
  const SeenKeys keys = seen_keys(shape, o, at.sample);
  const auto first_block = [&](int64_t query) {  // that queries from `query` on see
    return keys.first(query) / kKeyBlock * kKeyBlock;
  };
  const int64_t first = first_block(query_blocks.begin * kQueryBlock);
  const int64_t end = keys.end(std::min(query_blocks.end * kQueryBlock, shape.seq) - 1);
  const auto pack = [&](const void* from) {
    pack_rows(shape, from, at.kv + first * stride, stride, end - first, s.values + first * width);
  };
  pack(o.in.k);  // s.values holds the keys until they are transposed
  transpose_panels(shape, s.values, first, end, s.key_panels);
  pack(o.in.v);

  for (int64_t q = query_blocks.begin; q < query_blocks.end; ++q) {
    const int64_t query = q * kQueryBlock, rows = std::min(kQueryBlock, shape.seq - query);
    pack_rows(shape, o.in.q, at.q + query * shape.q_stride(), shape.q_stride(), rows, s.queries);
    std::fill_n(s.sums, rows * width, 0.0f);
    std::fill_n(s.max, rows, -std::numeric_limits<float>::infinity());
    std::fill_n(s.total, rows, 0.0f);
    const int64_t end_key = keys.end(query + rows - 1);
    for (int64_t key = first_block(query); key < end_key; key += kKeyBlock) {
      const int64_t columns = std::min(kKeyBlock, end_key - key);
      forward_block(shape, o, at, {query, rows, key, columns, keys}, s);
    }
    for (int64_t r = 0; r < rows; ++r) {
      fetch_next_head<true>(o.y, at.y + (query + r) * shape.channels(), shape.head_size,
                            shape.dtype);
      narrow_row(s.sums + r * width, shape.head_size, shape.drop_scale / s.total[r], shape.dtype,
                 element(o.y, at.y + (query + r) * shape.channels(), shape.dtype));
      o.lse[at.lse + query + r] =
          static_cast<float>(s.max[r] * 0.6931471805599453 + std::log(double{s.total[r]}));
    }
  }
}

}  // namespace dstrain::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
