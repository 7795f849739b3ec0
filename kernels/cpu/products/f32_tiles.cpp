#include "kernels/cpu/products/f32_tiles.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/products/f32_tiles.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "runtime/core/isa/best_variant.h"

HWY_BEFORE_NAMESPACE();
namespace dstrain::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using Floats = hn::ScalableTag<float>;
using FloatVec = hn::Vec<Floats>;

constexpr int kFloats = static_cast<int>(hn::MaxLanes(Floats()));
// As many sums as fit in the registers beside two vectors of B and one of A.
constexpr int kTileRows = kFloats == 16 ? 12 : 6;
constexpr int kTileColumns = 2 * kFloats;
// How often a panel of A holds each element. SSE has no load that fills a vector with one element, and a shuffle for
// each would take the place of a product.
constexpr int kCopies = kFloats == 4 ? kFloats : 1;
constexpr int64_t kLine = 16;  // floats in a cache line
constexpr int64_t kRowsAhead =
    6;  // rows to prefetch: they are too far apart for the hardware prefetcher

// Transposes four rows of four floats; the columns are written `step` floats apart.
HWY_ATTR inline void transpose_four(const float* from, int64_t stride, float* to, int64_t step) {
#if HWY_TARGET == HWY_SCALAR
  for (int64_t i = 0; i < 4; ++i)
    for (int64_t k = 0; k < 4; ++k) to[k * step + i] = from[i * stride + k];
#else
  const hn::FixedTag<float, 4> d;
  const auto r0 = hn::LoadU(d, from), r1 = hn::LoadU(d, from + stride);
  const auto r2 = hn::LoadU(d, from + 2 * stride), r3 = hn::LoadU(d, from + 3 * stride);
  const auto low01 = hn::InterleaveLower(d, r0, r1), high01 = hn::InterleaveUpper(d, r0, r1);
  const auto low23 = hn::InterleaveLower(d, r2, r3), high23 = hn::InterleaveUpper(d, r2, r3);
  hn::StoreU(hn::ConcatLowerLower(d, low23, low01), d, to);
  hn::StoreU(hn::ConcatUpperUpper(d, low23, low01), d, to + step);
  hn::StoreU(hn::ConcatLowerLower(d, high23, high01), d, to + 2 * step);
  hn::StoreU(hn::ConcatUpperUpper(d, high23, high01), d, to + 3 * step);
#endif
}

// Packs four floats of each of `width` rows.
template <int width>
HWY_ATTR HWY_INLINE void pack_four(const float* from, int64_t stride, float* to) {
  constexpr int whole = width / 4 * 4;
  for (int i = 0; i < whole; i += 4) transpose_four(from + i * stride, stride, to + i, width);
  if constexpr (whole < width)
    for (int64_t k = 0; k < 4; ++k)
      for (int i = whole; i < width; ++i) to[k * width + i] = from[i * stride + k];
}

// Packs `count` rows of `depth` floats into a panel of `width`.
template <int width>
HWY_ATTR void pack_rows(const float* from, int64_t stride, int64_t count, int64_t depth,
                        float* to) {
  static_assert(width % 2 == 0);
  int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    const float* rows = from + i * stride;
    int64_t k = 0;
    for (; k + kLine <= depth; k += kLine) {
      for (int64_t j = 4; j < 8; ++j) __builtin_prefetch(rows + j * stride + k);
      for (int64_t part = 0; part < kLine; part += 4)
        transpose_four(rows + k + part, stride, to + (k + part) * width + i, width);
    }
    for (; k + 4 <= depth; k += 4) transpose_four(rows + k, stride, to + k * width + i, width);
    for (; k < depth; ++k)
      for (int64_t j = 0; j < 4; ++j) to[k * width + i + j] = rows[j * stride + k];
  }
  for (; i < width; ++i)
    for (int64_t k = 0; k < depth; ++k) to[k * width + i] = i < count ? from[i * stride + k] : 0.0f;
}

// Copies one row of a panel. The compiler makes a call of a copy of this length, which takes longer than the copy.
template <int width>
HWY_ATTR inline void copy_row(const float* from, float* to) {
  constexpr int lanes = width % kFloats == 0 ? kFloats : width % 4 == 0 ? 4 : 2;
  const hn::CappedTag<float, lanes> d;
  if constexpr (hn::MaxLanes(hn::CappedTag<float, lanes>()) == lanes) {
    for (int i = 0; i < width; i += lanes) hn::StoreU(hn::LoadU(d, from + i), d, to + i);
  } else {
    std::copy_n(from, width, to);
  }
}

template <int width>
HWY_ATTR void pack_panels(const F32Source& s, float* to) {
  const int64_t panel = width * s.depth, whole = s.extent / width * width;
  if (!s.depth_major) {
    for (int64_t at = 0; at < s.extent; at += width, to += panel)
      pack_rows<width>(s.data + at * s.stride, s.stride, std::min<int64_t>(width, s.extent - at),
                       s.depth, to);
    return;
  }
  for (int64_t k = 0; k < s.depth; ++k) {
    const float* from = s.data + k * s.stride;
    float* row = to + k * width;
    for (int64_t at = 0; at < s.extent; at += kLine)
      __builtin_prefetch(from + kRowsAhead * s.stride + at);
    for (int64_t at = 0; at < whole; at += width, row += panel) copy_row<width>(from + at, row);
    if (whole < s.extent)
      std::fill(std::copy(from + whole, from + s.extent, row), row + width, 0.0f);
  }
}

// Other work that a tile does between its multiplications, which leave the units that load and store idle: after each kLength
// values of k a step for the values [k, until) of another panel.
struct NoOtherWork {
  static constexpr int64_t kLength = INT64_MAX / 2;
  void step(int64_t, int64_t) const {}
};

// Prefetches a panel of A that has all its rows. `depth_major` is that of the source.
template <bool depth_major>
struct PrefetchPanel {
  static constexpr int64_t kLength = 4;

  const float* from;
  int64_t stride;

  HWY_ATTR HWY_INLINE void step(int64_t k, int64_t until) const {
    if constexpr (depth_major) {
      for (; k < until; ++k) {
        __builtin_prefetch(from + k * stride);
        __builtin_prefetch(from + k * stride + kTileRows - 1);
      }
    } else {
      // Each of a cache line's steps prefetches the line of some of the rows.
      constexpr int64_t kSteps = kLine / kLength, kRows = (kTileRows + kSteps - 1) / kSteps;
      const int64_t first = k / kLength % kSteps * kRows;
      for (int64_t i = first; i < std::min<int64_t>(first + kRows, kTileRows); ++i)
        __builtin_prefetch(from + i * stride + k);
    }
  }
};

// Packs such a panel.
template <bool depth_major>
struct PackPanel {
  static constexpr int64_t kLength = 4;

  const float* from;
  int64_t stride;
  float* to;

  HWY_ATTR HWY_INLINE void step(int64_t k, int64_t until) const {
    if constexpr (depth_major) {
      for (; k < until; ++k) copy_row<kTileRows>(from + k * stride, to + k * kTileRows);
    } else if (until - k == kLength) {
      pack_four<kTileRows>(from + k, stride, to + k * kTileRows);
    } else {
      for (; k < until; ++k)
        for (int64_t i = 0; i < kTileRows; ++i) to[k * kTileRows + i] = from[i * stride + k];
    }
  }
};

// Spreads `count` packed floats over kCopies times the memory, each element as often, from the last one to the first.
HWY_ATTR void repeat_elements(float* packed, int64_t count) {
  const hn::CappedTag<float, kCopies> d;
  for (int64_t i = count - 1; i >= 0; --i)
    hn::Store(hn::Set(d, packed[i]), d, packed + i * kCopies);
}

// Writes the first `count` lanes of v to c, or adds them with `add`.
HWY_ATTR inline void put(FloatVec v, float* c, int64_t count, bool add) {
  const Floats d;
  if (count >= kFloats) {
    if (add) v = hn::Add(hn::LoadU(d, c), v);
    return hn::StoreU(v, d, c);
  }
  HWY_ALIGN float lanes[kFloats];
  hn::Store(v, d, lanes);
  for (int64_t i = 0; i < count; ++i) c[i] = add ? c[i] + lanes[i] : lanes[i];
}

// Adds the products of one k to the sums of a tile.
template <int rows, int vectors>
HWY_ATTR HWY_INLINE void add_products(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b,
                                      FloatVec (&sums)[rows][vectors]) {
  const Floats d;
  FloatVec right[vectors];
#pragma GCC unroll 2
  for (int v = 0; v < vectors; ++v) right[v] = hn::Load(d, b + v * kFloats);
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) {
    const FloatVec left = kCopies == 1 ? hn::Set(d, a[i]) : hn::Load(d, a + i * kCopies);
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) sums[i][v] = hn::MulAdd(left, right[v], sums[i][v]);
  }
}

// Computes a tile of `rows` rows by `vectors` vectors of columns, and does other work between the multiplications.
template <int rows, int vectors, class OtherWork>
HWY_ATTR void multiply_tile(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, int64_t depth,
                            float* HWY_RESTRICT c, int64_t stride, int64_t columns, bool add,
                            const OtherWork& work) {
  constexpr int64_t kStepA = kTileRows * kCopies, kStepB = kTileColumns;
  const Floats d;
  FloatVec sums[rows][vectors];
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) {
    __builtin_prefetch(c + i * stride, 1);
    __builtin_prefetch(c + i * stride + columns - 1, 1);
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) sums[i][v] = hn::Zero(d);
  }
  for (int64_t from = 0; from < depth; from += OtherWork::kLength) {
    const int64_t until = std::min(depth, from + OtherWork::kLength);
    // In a loop of a length that the compiler does not know: it would mix up the multiplications of several k, and run out
    // of registers.
#pragma GCC unroll 4
    for (int64_t k = from; k < until; ++k, a += kStepA, b += kStepB)
      add_products<rows, vectors>(a, b, sums);
    work.step(from, until);
  }
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v)
      put(sums[i][v], c + i * stride + v * kFloats, columns - v * kFloats, add);
  }
}

// Computes the `wanted` rows of a tile at the result's edge: halves the number of rows until it fits.
template <int rows>
HWY_ATTR void multiply_rows(const float* a, const float* b, int64_t wanted, int64_t depth, float* c,
                            int64_t stride, int64_t columns, bool add) {
  if constexpr (rows > 1) {
    constexpr int most = (rows + 1) / 2;
    if (wanted <= most) return multiply_rows<most>(a, b, wanted, depth, c, stride, columns, add);
    if (wanted < rows) {
      multiply_rows<most>(a, b, most, depth, c, stride, columns, add);
      return multiply_rows<rows - most>(a + most * kCopies, b, wanted - most, depth,
                                        c + most * stride, stride, columns, add);
    }
  }
  if (columns > kFloats)
    multiply_tile<rows, 2>(a, b, depth, c, stride, columns, add, NoOtherWork());
  else
    multiply_tile<rows, 1>(a, b, depth, c, stride, columns, add, NoOtherWork());
}

// Computes the first two tiles, and packs the next panel of A beside the second one. Prefetching beside the first one gives its
// elements the time to come from memory. Both panels have all their rows.
template <bool depth_major>
HWY_ATTR void multiply_and_pack(const F32Tiles& t) {
  const F32Source& next = t.next_a;
  multiply_tile<kTileRows, 2>(t.a, t.b, t.depth, t.c, t.stride, kTileColumns, t.add,
                              PrefetchPanel<depth_major>{next.data, next.stride});
  multiply_tile<kTileRows, 2>(t.a, t.b + kTileColumns * t.depth, t.depth, t.c + kTileColumns,
                              t.stride, kTileColumns, t.add,
                              PackPanel<depth_major>{next.data, next.stride, t.packed_next});
}

void pack_a_panels(const F32Source& a, float* to) {
  pack_panels<kTileRows>(a, to);
  if constexpr (kCopies > 1)
    repeat_elements(to, (a.extent + kTileRows - 1) / kTileRows * kTileRows * a.depth);
}

void multiply_row_of_tiles(const F32Tiles& t) {
  int64_t j = 0;
  if (kCopies == 1 && t.rows == kTileRows && t.next_a.extent == kTileRows &&
      t.columns >= 2 * kTileColumns) {
    t.next_a.depth_major ? multiply_and_pack<true>(t) : multiply_and_pack<false>(t);
    j = 2 * kTileColumns;
  } else if (t.next_a.extent > 0) {
    pack_a_panels(t.next_a, t.packed_next);
  }
  for (; j < t.columns; j += kTileColumns)
    multiply_rows<kTileRows>(t.a, t.b + j * t.depth, t.rows, t.depth, t.c + j, t.stride,
                             std::min<int64_t>(kTileColumns, t.columns - j), t.add);
}

void pack_b_panels(const F32Source& b, float* to) {
  pack_panels<kTileColumns>(b, to);
}
int64_t tile_rows() {
  return kTileRows;
}
int64_t copies_of_a() {
  return kCopies;
}
int64_t tile_columns() {
  return kTileColumns;
}

}  // namespace
}  // namespace dstrain::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain {

int64_t f32_tile_rows() {
  return DSTRAIN_BEST(tile_rows)();
}
int64_t f32_tile_columns() {
  return DSTRAIN_BEST(tile_columns)();
}
int64_t f32_copies_of_a() {
  return DSTRAIN_BEST(copies_of_a)();
}
void pack_f32_a(const F32Source& a, float* to) {
  DSTRAIN_BEST(pack_a_panels)(a, to);
}
void pack_f32_b(const F32Source& b, float* to) {
  DSTRAIN_BEST(pack_b_panels)(b, to);
}
void multiply_f32(const F32Tiles& tiles) {
  DSTRAIN_BEST(multiply_row_of_tiles)(tiles);
}

}  // namespace dstrain
#endif  // HWY_ONCE
