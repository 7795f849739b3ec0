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

// Computes a tile of `rows` rows by `vectors` vectors of columns.
template <int rows, int vectors>
HWY_ATTR void multiply_tile(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, int64_t depth,
                            float* HWY_RESTRICT c, int64_t stride, int64_t columns, bool add) {
  const Floats d;
  FloatVec sums[rows][vectors];
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) {
    __builtin_prefetch(c + i * stride, 1);
    __builtin_prefetch(c + i * stride + columns - 1, 1);
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) sums[i][v] = hn::Zero(d);
  }
#pragma GCC unroll 4
  for (int64_t k = 0; k < depth; ++k, a += kTileRows * kCopies, b += kTileColumns) {
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
    multiply_tile<rows, 2>(a, b, depth, c, stride, columns, add);
  else
    multiply_tile<rows, 1>(a, b, depth, c, stride, columns, add);
}

void multiply_panels_of(const F32Tiles& t) {
  for (int64_t i = 0; i < t.rows; i += kTileRows)
    for (int64_t j = 0; j < t.columns; j += kTileColumns)
      multiply_rows<kTileRows>(t.a + i * t.depth * kCopies, t.b + j * t.depth,
                               std::min<int64_t>(kTileRows, t.rows - i), t.depth,
                               t.c + i * t.stride + j, t.stride,
                               std::min<int64_t>(kTileColumns, t.columns - j), t.add);
}

void pack_a_panels(const F32Source& a, float* to) {
  pack_panels<kTileRows>(a, to);
  if constexpr (kCopies > 1)
    repeat_elements(to, (a.extent + kTileRows - 1) / kTileRows * kTileRows * a.depth);
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
  DSTRAIN_BEST(multiply_panels_of)(tiles);
}

}  // namespace dstrain
#endif  // HWY_ONCE
