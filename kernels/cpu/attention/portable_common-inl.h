// The common part of the portable forward and backward passes: block sizes, packing of a head's operands, and
// the keys that the queries of a pair of blocks see. Included once per Highway target.
#if defined(DSTRAIN_ATTENTION_PORTABLE_COMMON_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DSTRAIN_ATTENTION_PORTABLE_COMMON_INL_H_
#undef DSTRAIN_ATTENTION_PORTABLE_COMMON_INL_H_
#else
#define DSTRAIN_ATTENTION_PORTABLE_COMMON_INL_H_
#endif

#include <algorithm>

#include "kernels/cpu/attention/dropout_bits-inl.h"
#include "kernels/cpu/attention/implementation.h"
#include "kernels/cpu/attention/product-inl.h"
#include "kernels/cpu/attention/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dstrain::attention::HWY_NAMESPACE {

inline constexpr int64_t kQueryBlock = 64;
inline constexpr int64_t kKeyBlock = 256;
inline constexpr int64_t kPanel = 64;  // keys of a transposed panel
inline constexpr int64_t kMaskStride = mask_words(kKeyBlock);
static_assert(kKeyBlock <= kMaxMaskColumns);

inline int64_t padded_size(const AttentionShape& shape) {
  return round_up(shape.head_size, kLanes32);
}

// Widens `rows` rows of D elements, of which the first is element `first` of `src`, `stride` elements apart, into rows of
// padded_size floats.
inline void pack_rows(const AttentionShape& shape, const void* src, int64_t first, int64_t stride,
                      int64_t rows, float* dst) {
  const int64_t width = padded_size(shape);
  for (int64_t r = 0; r < rows; ++r) {
    fetch_next_head<false>(src, first + r * stride, shape.head_size, shape.dtype);
    widen_row(element(src, first + r * stride, shape.dtype), shape.head_size, shape.dtype,
              dst + r * width, width);
  }
}

// Transposes keys [begin, rows), given as rows of padded_size floats, into panels of kPanel keys, each
// (D, kPanel). `begin` must be a multiple of kPanel. Keys past `rows` in the last panel are zero.
inline void transpose_panels(const AttentionShape& shape, const float* src, int64_t begin,
                             int64_t rows, float* dst) {
  const F32 d;
  const int64_t width = padded_size(shape);
  alignas(64) int32_t indices[kLanes32];
  for (int64_t n = 0; n < kLanes32; ++n) indices[n] = static_cast<int32_t>(n * width);
  const auto index = hn::Load(I32(), indices);
  for (int64_t key = begin; key < round_up(rows, kPanel); key += kLanes32) {
    float* out = dst + key / kPanel * (shape.head_size * kPanel) + key % kPanel;
    const float* in = src + key * width;
    if (key + kLanes32 <= rows) {
      for (int64_t c = 0; c < shape.head_size; ++c) {
        hn::StoreU(hn::GatherIndex(d, in + c, index), d, out + c * kPanel);
      }
    } else {
      for (int64_t c = 0; c < shape.head_size; ++c) {
        for (int64_t n = 0; n < kLanes32; ++n) {
          out[c * kPanel + n] = key + n < rows ? in[n * width + c] : 0.0f;
        }
      }
    }
  }
}

// A pair of blocks: queries [query, query + rows) against keys [key, key + columns).
struct BlockPair {
  int64_t query, rows, key, columns;
  SeenKeys keys;

  // The columns that row r of the block sees: [seen_from_row, seen_until_row), empty if the first is not the smaller.
  int64_t seen_from_row(int64_t r) const {
    return std::clamp<int64_t>(keys.first(query + r) - key, 0, columns);
  }
  int64_t seen_until_row(int64_t r) const {
    return std::clamp<int64_t>(keys.end(query + r) - key, 0, columns);
  }
  // The rows of the block that see column c: [first_row_of, end_row_of).
  int64_t first_row_of(int64_t c) const {
    return std::clamp<int64_t>(keys.first_query(key + c) - query, 0, rows);
  }
  int64_t end_row_of(int64_t c) const {
    if (!keys.causal) return rows;
    const int64_t end = std::clamp<int64_t>(key + c + keys.window - query, 0, rows);
    if (keys.documents == nullptr) return end;
    const int32_t* const begin = keys.documents + query;
    return std::upper_bound(begin, begin + end, key + c) - begin;
  }
};

// Returns the end of the queries that see a key of [key, key + keys), of those of the sample.
inline int64_t end_query(const SeenKeys& seen, int64_t key, int64_t keys) {
  const int64_t end = std::min(key + keys - 1 + seen.window, seen.seq);
  if (seen.documents == nullptr) return end;
  return std::upper_bound(seen.documents + key, seen.documents + end, key + keys - 1) -
         seen.documents;
}

// Calls whole(c) for the vectors of columns [from, until) from column c on, and part(c, mask) for those of which only the
// lanes in `mask` are among these columns.
template <class Whole, class Part>
HWY_INLINE void for_columns(int64_t from, int64_t until, const Whole& whole, const Part& part) {
  const F32 d;
  int64_t c = from / kLanes32 * kLanes32;
  if (c < from) {
    auto mask = hn::Not(hn::FirstN(d, static_cast<size_t>(from - c)));
    if (until < c + kLanes32) mask = hn::And(mask, hn::FirstN(d, static_cast<size_t>(until - c)));
    part(c, mask);
    c += kLanes32;
  }
  for (; c + kLanes32 <= until; c += kLanes32) whole(c);
  if (c < until) part(c, hn::FirstN(d, static_cast<size_t>(until - c)));
}

// Sets the vectors of a row that hold none of columns [from, until) to zero, up to column `columns`.
inline void clear_unseen(float* row, int64_t from, int64_t until, int64_t columns) {
  const F32 d;
  for (int64_t c = 0; c < from / kLanes32 * kLanes32; c += kLanes32)
    hn::StoreU(hn::Zero(d), d, row + c);
  for (int64_t c = round_up(until, kLanes32); c < columns; c += kLanes32)
    hn::StoreU(hn::Zero(d), d, row + c);
}

// c (rows x kKeyBlock) = a (rows x D) times transposed panels. Tiles of which no query sees a key are skipped.
inline void seen_scores(const AttentionShape& shape, const BlockPair& block, const float* a,
                        const float* panels, float* c) {
  const int64_t width = padded_size(shape);
  for (int64_t n = 0; n < block.columns; n += kPanel) {
    const MatrixB b{panels + (block.key + n) / kPanel * (shape.head_size * kPanel), kPanel};
    for (int64_t r = 0; r < block.rows; r += kTileRows) {
      const int64_t rows = std::min(kTileRows, block.rows - r);
      const int64_t columns = std::min<int64_t>(block.seen_until_row(r + rows - 1) - n, kPanel);
      if (columns <= 0 || block.seen_from_row(r) >= n + kPanel) continue;
      strip(rows, {a + r * width, width, 1}, b, {c + r * kKeyBlock + n, kKeyBlock},
            divide_up(columns, kLanes32), shape.head_size, Into::set);
    }
  }
}

// Replaces columns [from, until) of a row of scores by what the limit leaves of them; other columns of their vectors may
// change.
inline void limit_scores(const AttentionShape& shape, float* scores, int64_t from, int64_t until) {
  const F32 d;
  const auto limit = hn::Set(d, static_cast<float>(shape.limit)),
             inverse = hn::Set(d, static_cast<float>(1 / shape.limit));
  for (int64_t c = from / kLanes32 * kLanes32; c < until; c += kLanes32) {
    const auto score = hn::Mul(hn::LoadU(d, scores + c), inverse);
    hn::StoreU(hn::Mul(tanh_of(score), limit), d, scores + c);
  }
}

// Writes the mask bits of a pair of blocks, kMaskStride words a row.
inline void block_mask(const AttentionShape& shape, const Operands& o, const HeadOffsets& at,
                       const BlockPair& block, uint64_t* bits) {
  mask_rows(
      mask_of(shape, o, at, block.query, block.rows, block.key, block.columns, bits, kMaskStride));
}

// Returns the lanes of columns [c, c + lanes) whose bits are set; c must be a multiple of the lanes.
HWY_INLINE hn::Mask<F32> kept_lanes(const uint64_t* row, int64_t c) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(row);
  if constexpr (kLanes32 >= 8) {
    return hn::LoadMaskBits(F32(), bytes + c / 8);
  } else {
    const uint8_t shifted[8] = {static_cast<uint8_t>(bytes[c / 8] >> (c % 8))};
    return hn::LoadMaskBits(F32(), shifted);
  }
}

}  // namespace dstrain::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
