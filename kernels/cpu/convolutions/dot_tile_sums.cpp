// Words are pairs of bf16, whose products AVX512_BF16 adds in f32.
#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/cpu/convolutions/tile_sums.h"

#define DST_BF16 __attribute__((target("avx512f,avx512bf16")))

namespace dstrain {
namespace {

constexpr int kFloats = 16;
constexpr int kMostRows =
    12;  // whose sums fit in the registers beside two vectors of B and one of A
constexpr int kMostVectors = 2;

DST_BF16 inline __mmask16 first_lanes(int64_t count) {
  return static_cast<__mmask16>((1u << std::clamp<int64_t>(count, 0, kFloats)) - 1);
}

// Returns one pair of A in all lanes.
DST_BF16 inline __m512i spread(const char* pair) {
  int32_t bits;
  std::memcpy(&bits, pair, sizeof(bits));
  return _mm512_set1_epi32(bits);
}

template <int rows, int vectors>
DST_BF16 inline void add_products(const TileSums& t, const TileSums::Product& product,
                                  const __mmask16 (&lanes)[vectors],
                                  __m512 (&sums)[rows][vectors]) {
  constexpr int64_t kWord = 4;
  constexpr int groups = (rows + 3) / 4;
  const char* b = static_cast<const char*>(product.b);
  const char* a[groups];
  const int64_t row = t.a_row * kWord, step = t.a_depth * kWord, b_step = t.b_depth * kWord;
  for (int g = 0; g < groups; ++g) a[g] = static_cast<const char*>(product.a) + 4 * g * row;
  for (int64_t k = 0; k < t.depth; ++k, b += b_step) {
    __m512i right[vectors];
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v)
      right[v] = _mm512_maskz_loadu_epi32(lanes[v], b + v * kFloats * kWord);
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) {
      const __m512i left = spread(a[i / 4] + i % 4 * row);
#pragma GCC unroll 2
      for (int v = 0; v < vectors; ++v)
        sums[i][v] = _mm512_dpbf16_ps(sums[i][v], (__m512bh)left, (__m512bh)right[v]);
    }
#pragma GCC unroll 4
    for (int g = 0; g < groups; ++g) a[g] += step;
  }
}

template <int rows, int vectors>
DST_BF16 void sum_tile(const TileSums& t) {
  __m512 sums[rows][vectors];
  __mmask16 lanes[vectors];
#pragma GCC unroll 2
  for (int v = 0; v < vectors; ++v) lanes[v] = first_lanes(t.columns - v * kFloats);
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) sums[i][v] = _mm512_setzero_ps();
  for (int64_t p = 0; p < t.count; ++p) add_products<rows, vectors>(t, t.products[p], lanes, sums);
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) {
      float* const c = t.c + i * t.c_row + v * kFloats;
      if (t.add) sums[i][v] = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes[v], c), sums[i][v]);
      _mm512_mask_storeu_ps(c, lanes[v], sums[i][v]);
    }
}

template <int rows>
void sum_rows_of(const TileSums& t) {
  t.columns > kFloats ? sum_tile<rows, 2>(t) : sum_tile<rows, 1>(t);
}

template <int... i>
void sum_by_rows(const TileSums& t, std::integer_sequence<int, i...>) {
  static constexpr void (*kByRows[])(const TileSums&) = {sum_rows_of<i + 1>...};
  kByRows[t.rows - 1](t);
}

void sum(const TileSums& t) {
  sum_by_rows(t, std::make_integer_sequence<int, kMostRows>());
}

}  // namespace

TileKernel dot_tiles_of_sums() {
  return {.rows = kMostRows, .columns = int64_t{kMostVectors} * kFloats, .sum = sum};
}

}  // namespace dstrain
