// Blocks of int4 values (runtime/ir/quantized.h) in registers. Included once per Highway target, hence the toggled
// include guard.
#if defined(DSTRAIN_SIMD_INT4_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DSTRAIN_SIMD_INT4_INL_H
#undef DSTRAIN_SIMD_INT4_INL_H
#else
#define DSTRAIN_SIMD_INT4_INL_H
#endif

#include <algorithm>
#include <cstring>

#include "hwy/cache_control.h"
#include "kernels/cpu/memory_bound/codecs/int4_parts.h"
#include "kernels/cpu/memory_bound/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {

// A byte has two neighbouring values. Those of a quarter are in a pack of the first and a pack of the second ones, so
// that neither packing nor adding has to move them.
constexpr int kQuarters = 4;
static_assert(kInt4Quarter == 2 * kPack);
using DByte = hn::Rebind<uint8_t, DF>;

// The values of one int4 block as floats: by quarter, the first and the second value of each byte.
struct Int4Block {
  Pack first[kQuarters], second[kQuarters];
};

// The scales of four blocks are made together: a lane for each quarter of each of them fills a pack.
constexpr int kGroup = kPack / kQuarters;

// How far in front of what is loaded or stored memory is asked for, in bytes. What the processor asks for by itself
// comes too late, because a block takes most of the operations that it can have in work at once.
constexpr int64_t kWordsAhead = 1024, kCodesAhead = 4096, kValuesAhead = 12288;

// Asks for the memory of the values some time after x.
template <class T>
SIMD_FN void fetch_ahead(const T* x) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(x) + kValuesAhead;
  SIMD_UNROLL
  for (int64_t i = 0; i < kInt4Block * int64_t{sizeof(T)}; i += 64) hwy::Prefetch(bytes + i);
}

// Returns the first bits of the fields of the quarters in their words.
SIMD_FN hn::Vec<DU> field_bits(int part) {
  alignas(64) static constexpr uint32_t kBits[kPack] = {8, 14, 20, 26, 8, 14, 20, 26,
                                                        8, 14, 20, 26, 8, 14, 20, 26};
  return hn::Load(DU(), kBits + part * kLanes);
}

SIMD_FN void from_floats(const float* x, Int4Block& block) {
  SIMD_UNROLL
  for (int q = 0; q < kQuarters; ++q)
    for (int i = 0; i < kParts; ++i)
      hn::LoadInterleaved2(DF(), x + 2 * (q * kPack + i * kLanes), block.first[q].v[i],
                           block.second[q].v[i]);
}
// Stores the elements of a and b in turns.
SIMD_FN void store_in_turns(hn::Vec<DF> a, hn::Vec<DF> b, float* x) {
#if HWY_TARGET == HWY_AVX3
  // Highway takes six operations for it.
  alignas(64) static constexpr int32_t kTurns[2 * kPack] = {
      0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
      8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  for (int i = 0; i < 2; ++i)
    _mm512_storeu_ps(x + i * kPack,
                     _mm512_permutex2var_ps(a.raw, hn::Load(DI(), kTurns + i * kPack).raw, b.raw));
#else
  hn::StoreInterleaved2(a, b, DF(), x);
#endif
}
SIMD_FN void to_floats(const Int4Block& block, float* x) {
  SIMD_UNROLL
  for (int q = 0; q < kQuarters; ++q)
    for (int i = 0; i < kParts; ++i)
      store_in_turns(block.first[q].v[i], block.second[q].v[i], x + 2 * (q * kPack + i * kLanes));
}

// Loads the first n values of a block; the others are 0.
template <class T>
SIMD_FN void load_block(const T* x, int64_t n, Int4Block& block) {
  alignas(64) float wide[kInt4Block] = {};
  for_packs(0, n,
            [&](int64_t i, auto lanes) SIMD_INLINE { store(load(x + i, lanes), wide + i, lanes); });
  from_floats(wide, block);
}
template <>
SIMD_FN void load_block(const float* x, int64_t n, Int4Block& block) {
  if (n == kInt4Block) return from_floats(x, block);
  alignas(64) float wide[kInt4Block] = {};
  std::memcpy(wide, x, static_cast<size_t>(n) * sizeof *x);
  from_floats(wide, block);
}
template <>
SIMD_FN void load_block(const bf16* x, int64_t n, Int4Block& block) {
  alignas(64) bf16 some[kInt4Block];
  if (n < kInt4Block) {
    std::memset(some, 0, sizeof some);
    std::memcpy(some, x, static_cast<size_t>(n) * sizeof *x);
    x = some;
  }
  SIMD_UNROLL
  for (int q = 0; q < kQuarters; ++q)
    for (int i = 0; i < kParts; ++i) {
      const auto two =
          hn::LoadU(DU(), reinterpret_cast<const uint32_t*>(x) + q * kPack + i * kLanes);
      block.first[q].v[i] = hn::BitCast(DF(), hn::ShiftLeft<16>(two));
      block.second[q].v[i] = hn::BitCast(DF(), hn::And(two, hn::Set(DU(), 0xffff0000u)));
    }
}

// Stores the first n values of a block, rounded.
template <class T>
SIMD_FN void store_block(const Int4Block& block, T* y, int64_t n) {
  alignas(64) float wide[kInt4Block];
  to_floats(block, wide);
  for_packs(0, n,
            [&](int64_t i, auto lanes) SIMD_INLINE { store(load(wide + i, lanes), y + i, lanes); });
}
template <>
SIMD_FN void store_block(const Int4Block& block, float* y, int64_t n) {
  if (n == kInt4Block) return to_floats(block, y);
  alignas(64) float wide[kInt4Block];
  to_floats(block, wide);
  std::memcpy(y, wide, static_cast<size_t>(n) * sizeof *y);
}

// Returns a and b rounded to bf16, ties to even, in turns. Neither has a NaN with bits below those of bf16.
SIMD_FN hn::Vec<DU> rounded_pair(hn::Vec<DF> a, hn::Vec<DF> b) {
#if HWY_TARGET == HWY_AVX3
  // The halves of both values are rounded together: the low ones are above a tie, or at one below an odd high one.
  alignas(64) static constexpr uint16_t kLow[2 * kPack] = {
      0,  32, 2,  34, 4,  36, 6,  38, 8,  40, 10, 42, 12, 44, 14, 46,
      16, 48, 18, 50, 20, 52, 22, 54, 24, 56, 26, 58, 28, 60, 30, 62};
  const __m512i to_low = _mm512_load_si512(kLow);
  const __m512i to_high = _mm512_or_si512(to_low, _mm512_set1_epi16(1));
  const __m512i x = _mm512_castps_si512(a.raw), y = _mm512_castps_si512(b.raw);
  const __m512i low = _mm512_permutex2var_epi16(x, to_low, y);
  const __m512i high = _mm512_permutex2var_epi16(x, to_high, y);
  const __m512i one = _mm512_set1_epi16(1), tie = _mm512_set1_epi16(INT16_MIN);
  const __m512i compared = _mm512_ternarylogic_epi32(low, high, one, 0xf8);  // low | (high & one)
  const __mmask32 up = _mm512_cmpgt_epu16_mask(compared, tie);
  return hn::Vec<DU>{_mm512_mask_add_epi16(high, up, high, one)};
#else
  const auto rounded = [](auto x) SIMD_INLINE {
    const auto bits = hn::BitCast(DU(), x);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(DU(), 1));
    return hn::Add(hn::Add(bits, hn::Set(DU(), 0x7fff)), odd);
  };
  return hn::Or(hn::ShiftRight<16>(rounded(a)), hn::And(rounded(b), hn::Set(DU(), 0xffff0000u)));
#endif
}

// The sum of int4 values and bf16 values is a NaN of the processor's own or one of bf16, if any. Neither has bits below
// those of bf16, so that rounding leaves it alone, and no value needs a test.
template <>
SIMD_FN void store_block(const Int4Block& block, bf16* y, int64_t n) {
  alignas(64) bf16 some[kInt4Block];
  auto* const to = reinterpret_cast<uint32_t*>(n == kInt4Block ? y : some);
  SIMD_UNROLL
  for (int q = 0; q < kQuarters; ++q)
    for (int i = 0; i < kParts; ++i)
      hn::StoreU(rounded_pair(block.first[q].v[i], block.second[q].v[i]), DU(),
                 to + q * kPack + i * kLanes);
  if (n < kInt4Block) std::memcpy(y, some, static_cast<size_t>(n) * sizeof *y);
}

SIMD_FN void add_block(const Int4Block& other, Int4Block& block) {
  SIMD_UNROLL
  for (int q = 0; q < kQuarters; ++q) {
    block.first[q] = block.first[q] + other.first[q];
    block.second[q] = block.second[q] + other.second[q];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#endif  // DSTRAIN_SIMD_INT4_INL_H
