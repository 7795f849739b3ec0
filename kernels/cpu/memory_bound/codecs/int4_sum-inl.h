// Sums of packed int4 values (runtime/ir/quantized.h). Included once per Highway target, hence the toggled include
// guard.
#if defined(DSTRAIN_SIMD_INT4_SUM_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DSTRAIN_SIMD_INT4_SUM_INL_H
#undef DSTRAIN_SIMD_INT4_SUM_INL_H
#else
#define DSTRAIN_SIMD_INT4_SUM_INL_H
#endif

#include <algorithm>
#include <cstring>

#include "kernels/cpu/memory_bound/codecs/int4-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {

// Stores the scales of the quarters of the blocks from b on, `blocks` of them and a group at most: infinite ones in a
// block of NaNs, whose codes are 0.
SIMD_FN void load_scales(const std::byte* packed, int64_t b, int64_t blocks, float* scales) {
  alignas(16) uint32_t words[kGroup] = {};
  const std::byte* from = packed + b * kInt4Word;
  hwy::Prefetch(from + kWordsAhead);
  if (blocks == kGroup)
    std::memcpy(words, from, sizeof words);
  else
    std::memcpy(words, from, static_cast<size_t>(blocks * kInt4Word));
#if HWY_TARGET != HWY_SCALAR
  alignas(64) static constexpr int32_t kBlockOf[kPack] = {0, 0, 0, 0, 1, 1, 1, 1,
                                                          2, 2, 2, 2, 3, 3, 3, 3};
  const auto four = hn::LoadDup128(DU(), words);
#endif
  SIMD_UNROLL
  for (int i = 0; i < kParts; ++i) {
#if HWY_TARGET == HWY_SCALAR
    const auto word = hn::Set(DU(), words[i / kQuarters]);
#else
    const auto word = hn::TableLookupLanes(four, hn::SetTableIndices(DU(), kBlockOf + i * kLanes));
#endif
    const auto unit = hn::BitCast(DF(), hn::ShiftLeft<23>(hn::And(word, hn::Set(DU(), 255))));
    const auto field = hn::Shr(word, field_bits(i));
    const auto multiple = hn::Add(hn::And(field, hn::Set(DU(), 31)), hn::Set(DU(), 1));
    const auto sign = hn::ShiftLeft<26>(hn::And(field, hn::Set(DU(), 32)));
    const auto scale = hn::Mul(hn::ConvertTo(DF(), hn::BitCast(DI(), multiple)), unit);
    hn::Store(hn::BitCast(DF(), hn::Xor(hn::BitCast(DU(), scale), sign)), DF(),
              scales + i * kLanes);
  }
}

// Adds scaled int4 values to sums in f32; a byte holds the codes of two values. A product with the scale is exact, so
// that a fused sum has the bits of one that is not.
class CodeValues {
 public:
  SIMD_FN explicit CodeValues(float scale) : scale_(hn::Set(DF(), scale)) {}
#if HWY_TARGET == HWY_AVX3
  SIMD_FN void add_low(hn::Vec<DI> two, hn::Vec<DF>& sum) const {
    add(two, 0x4b000008, ~0xfffff0, 8388608.0f + 8.0f, sum);
  }
  SIMD_FN void add_high(hn::Vec<DI> two, hn::Vec<DF>& sum) const {
    add(two, 0x49000080, ~0xffff0f, 524288.0f + 8.0f, sum);
  }

 private:
  // (two ^ a) & b: a code and 8 behind the bits of a power of two, `above` less 8, whose last bit stands for 1.
  SIMD_FN void add(hn::Vec<DI> two, int a, int b, float above, hn::Vec<DF>& sum) const {
    const __m512i bits =
        _mm512_ternarylogic_epi32(two.raw, _mm512_set1_epi32(a), _mm512_set1_epi32(b), 0x28);
    const auto code = hn::Sub(hn::Vec<DF>{_mm512_castsi512_ps(bits)}, hn::Set(DF(), above));
    sum = hn::MulAdd(code, scale_, sum);
  }
#else
  SIMD_FN void add_low(hn::Vec<DI> two, hn::Vec<DF>& sum) const {
    add(hn::ShiftLeft<28>(two), sum);
  }
  SIMD_FN void add_high(hn::Vec<DI> two, hn::Vec<DF>& sum) const {
    add(hn::ShiftLeft<24>(two), sum);
  }

 private:
  SIMD_FN void add(hn::Vec<DI> high_bits, hn::Vec<DF>& sum) const {
    sum = hn::MulAdd(hn::ConvertTo(DF(), hn::ShiftRight<28>(high_bits)), scale_, sum);
  }
#endif
  hn::Vec<DF> scale_;
};

// Adds the values of a block's codes to `sum`; `scales` has those of its quarters.
SIMD_FN void add_codes(const uint8_t* codes, const float* scales, Int4Block& sum) {
  SIMD_UNROLL
  for (int q = 0; q < kQuarters; ++q) {
    const CodeValues values(scales[q]);
    for (int i = 0; i < kParts; ++i) {
      const auto two = hn::PromoteTo(DI(), hn::LoadU(DByte(), codes + q * kPack + i * kLanes));
      values.add_low(two, sum.first[q].v[i]);
      values.add_high(two, sum.second[q].v[i]);
    }
  }
}

// Adds blocks b to b + blocks - 1 of all parts, at most a group of blocks, and calls f(k, block) for each in order: `block`
// has the sums over the parts, added in their order, of block b + k.
template <class F>
SIMD_FN void sum_group(const PackedParts& parts, int64_t b, int64_t blocks, const F& f) {
  constexpr int64_t kAtOnce = 16;  // parts whose scales are kept for all blocks of the group
  alignas(64) float scales[kAtOnce * kPack];
  alignas(64) uint8_t last[kInt4BlockBytes];
  for (int64_t k = 0; k < blocks; ++k) {
    const int64_t bytes = (std::min(kInt4Block, parts.n - (b + k) * kInt4Block) + 1) / 2;
    const int64_t at = int4_blocks(parts.n) * kInt4Word + (b + k) * kInt4BlockBytes;
    Int4Block sum;
    SIMD_UNROLL
    for (int q = 0; q < kQuarters; ++q) sum.first[q] = sum.second[q] = all(0);
    for (int64_t first = 0; first < parts.count; first += kAtOnce) {
      const int64_t here = std::min(kAtOnce, parts.count - first);
      const std::byte* const packed = parts.packed + first * parts.stride;
      if (k == 0 || parts.count > kAtOnce)
        for (int64_t p = 0; p < here; ++p)
          load_scales(packed + p * parts.stride, b, blocks, scales + p * kPack);
      const auto* codes = reinterpret_cast<const uint8_t*>(packed + at);
      const float* by = scales + k * kQuarters;
      if (bytes == kInt4BlockBytes) {
        for (int64_t p = 0; p < here; ++p, codes += parts.stride, by += kPack) {
          hwy::Prefetch(codes + kCodesAhead);
          add_codes(codes, by, sum);
        }
        continue;
      }
      std::memset(last, 0, sizeof last);
      for (int64_t p = 0; p < here; ++p, codes += parts.stride, by += kPack) {
        std::memcpy(last, codes, static_cast<size_t>(bytes));
        add_codes(last, by, sum);
      }
    }
    f(k, sum);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#endif  // DSTRAIN_SIMD_INT4_SUM_INL_H
