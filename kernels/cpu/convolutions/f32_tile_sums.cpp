#include <algorithm>
#include <utility>

#include "kernels/cpu/convolutions/tile_sums.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/convolutions/f32_tile_sums.cpp"
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
constexpr int kMostRows = kFloats == 16 ? 12 : 6;
constexpr int kMostVectors = 2;

// Returns which of the lanes of a vector are the first `count`.
HWY_ATTR HWY_INLINE hn::Mask<Floats> first_lanes(int64_t count) {
  return hn::FirstN(Floats(), static_cast<size_t>(std::clamp<int64_t>(count, 0, kFloats)));
}

// Returns the first `count` lanes at `from`, and zeros behind them. All may be read with `whole`.
template <bool whole>
HWY_ATTR HWY_INLINE FloatVec lanes_at(const float* from, int64_t count) {
  if constexpr (whole) return hn::LoadU(Floats(), from);
  return hn::MaskedLoad(first_lanes(count), Floats(), from);
}

// Writes the first `count` lanes of v to c, or adds them with `add`.
HWY_ATTR HWY_INLINE void put(FloatVec v, float* c, int64_t count, bool add) {
  const Floats d;
  if (count >= kFloats) {
    if (add) v = hn::Add(hn::LoadU(d, c), v);
    return hn::StoreU(v, d, c);
  }
  const auto lanes = first_lanes(count);
  if (add) v = hn::Add(hn::MaskedLoad(lanes, d, c), v);
  hn::BlendedStore(v, lanes, d, c);
}

// Adds the products of one pair of matrices to the sums. Four rows of A share a pointer, so that pointers stay in registers.
template <int rows, int vectors, bool depth_major, bool whole>
HWY_ATTR HWY_INLINE void add_products(const TileSums& t, const TileSums::Product& product,
                                      FloatVec (&sums)[rows][vectors]) {
  const Floats d;
  constexpr int groups = (rows + 3) / 4;
  const float* b = static_cast<const float*>(product.b);
  const float* a[groups];
  const int64_t row = depth_major ? 1 : t.a_row, step = depth_major ? t.a_depth : 1;
  for (int g = 0; g < groups; ++g) a[g] = static_cast<const float*>(product.a) + 4 * g * row;
  for (int64_t k = 0; k < t.depth; ++k, b += t.b_depth) {
    FloatVec right[vectors];
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v)
      right[v] = lanes_at<whole>(b + v * kFloats, t.columns - v * kFloats);
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) {
      const FloatVec left = hn::Set(d, a[i / 4][i % 4 * row]);
#pragma GCC unroll 2
      for (int v = 0; v < vectors; ++v) sums[i][v] = hn::MulAdd(left, right[v], sums[i][v]);
    }
#pragma GCC unroll 4
    for (int g = 0; g < groups; ++g) a[g] += step;
  }
}

template <int rows, int vectors, bool depth_major, bool whole>
HWY_ATTR void sum_tile(const TileSums& t) {
  FloatVec sums[rows][vectors];
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) sums[i][v] = hn::Zero(Floats());
  for (int64_t p = 0; p < t.count; ++p)
    add_products<rows, vectors, depth_major, whole>(t, t.products[p], sums);
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v)
      put(sums[i][v], t.c + i * t.c_row + v * kFloats, t.columns - v * kFloats, t.add);
}

template <int rows, int vectors>
HWY_ATTR void sum_columns(const TileSums& t) {
  const bool whole = t.whole_vectors || t.columns == vectors * kFloats;
  if (t.a_row == 1)
    whole ? sum_tile<rows, vectors, true, true>(t) : sum_tile<rows, vectors, true, false>(t);
  else
    whole ? sum_tile<rows, vectors, false, true>(t) : sum_tile<rows, vectors, false, false>(t);
}

template <int rows>
void sum_rows_of(const TileSums& t) {
  t.columns > kFloats ? sum_columns<rows, 2>(t) : sum_columns<rows, 1>(t);
}

template <int... i>
void sum_by_rows(const TileSums& t, std::integer_sequence<int, i...>) {
  static constexpr void (*kByRows[])(const TileSums&) = {sum_rows_of<i + 1>...};
  kByRows[t.rows - 1](t);
}

void sum(const TileSums& t) {
  sum_by_rows(t, std::make_integer_sequence<int, kMostRows>());
}

TileKernel tile_kernel() {
  return {.rows = kMostRows, .columns = int64_t{kMostVectors} * kFloats, .sum = sum};
}

}  // namespace
}  // namespace dstrain::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain {

TileKernel f32_tiles_of_sums() {
  return DSTRAIN_BEST(tile_kernel)();
}

}  // namespace dstrain
#endif  // HWY_ONCE
