// Packing of int4 values (runtime/ir/quantized.h). Included once per Highway target, hence the toggled include guard.
#if defined(DSTRAIN_SIMD_INT4_PACK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DSTRAIN_SIMD_INT4_PACK_INL_H
#undef DSTRAIN_SIMD_INT4_PACK_INL_H
#else
#define DSTRAIN_SIMD_INT4_PACK_INL_H
#endif

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/cpu/memory_bound/codecs/int4-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {

// Magnitudes above signs: of two values, that with the larger key has the larger magnitude, or is the negative one.
SIMD_FN hn::Vec<DU> key_of(hn::Vec<DF> x) {
  return hn::RotateRight<31>(hn::BitCast(DU(), x));
}

#if HWY_TARGET == HWY_SCALAR
using QuarterKeys = PackOf<hn::CappedTag<uint32_t, 1>>;
#else
// Quarter q's largest key is the largest of the lanes q of the 128-bit parts.
using QuarterKeys = hn::Vec<DU>;
#endif

// Returns the largest key of each quarter.
SIMD_FN QuarterKeys largest_keys(const Int4Block& block) {
  hn::Vec<DU> most[kQuarters];
  SIMD_UNROLL
  for (int q = 0; q < kQuarters; ++q) {
    most[q] = hn::Max(key_of(block.first[q].v[0]), key_of(block.second[q].v[0]));
    for (int i = 1; i < kParts; ++i)
      most[q] =
          hn::Max(most[q], hn::Max(key_of(block.first[q].v[i]), key_of(block.second[q].v[i])));
  }
#if HWY_TARGET == HWY_SCALAR
  return {{most[0], most[1], most[2], most[3]}};
#else
  // Four vectors are reduced together: each step halves what is left of two of them.
  const auto pairs = [](auto a, auto b) SIMD_INLINE {
    return hn::Max(hn::InterleaveLower(DU(), a, b), hn::InterleaveUpper(DU(), a, b));
  };
  const hn::Repartition<uint64_t, DU> wide;
  const auto low = hn::BitCast(wide, pairs(most[0], most[1]));
  const auto high = hn::BitCast(wide, pairs(most[2], most[3]));
  return hn::Max(hn::BitCast(DU(), hn::InterleaveLower(wide, low, high)),
                 hn::BitCast(DU(), hn::InterleaveUpper(wide, low, high)));
#endif
}

// Returns the largest keys of the quarters of a group, block by block.
SIMD_FN UPack joined(const QuarterKeys (&keys)[kGroup]) {
#if HWY_TARGET == HWY_SCALAR
  UPack all_keys;
  for (int i = 0; i < kPack; ++i) all_keys.v[i] = keys[i / kQuarters].v[i % kQuarters];
  return all_keys;
#elif HWY_TARGET == HWY_AVX3
  const auto halves = [](auto a, auto b) SIMD_INLINE {
    return hn::Max(hn::ConcatLowerLower(DU(), b, a), hn::ConcatUpperUpper(DU(), b, a));
  };
  const auto even = halves(keys[0], keys[2]), odd = halves(keys[1], keys[3]);
  return {{hn::OddEvenBlocks(hn::Max(odd, hn::SwapAdjacentBlocks(odd)),
                             hn::Max(even, hn::SwapAdjacentBlocks(even)))}};
#else
  UPack all_keys;
  for (int i = 0; i < kParts; ++i)
    all_keys.v[i] = hn::Max(hn::ConcatLowerLower(DU(), keys[2 * i + 1], keys[2 * i]),
                            hn::ConcatUpperUpper(DU(), keys[2 * i + 1], keys[2 * i]));
  return all_keys;
#endif
}

// Sets each lane to f of the lanes of its block.
template <class F>
SIMD_FN UPack over_blocks(UPack x, const F& f) {
#if HWY_TARGET == HWY_SCALAR
  for (int i = 0; i < kPack; i += kQuarters) {
    const auto a = f(f(x.v[i], x.v[i + 1]), f(x.v[i + 2], x.v[i + 3]));
    x.v[i] = x.v[i + 1] = x.v[i + 2] = x.v[i + 3] = a;
  }
#else
  SIMD_UNROLL
  for (int i = 0; i < kParts; ++i) {
    x.v[i] = f(x.v[i], hn::Shuffle1032(x.v[i]));
    x.v[i] = f(x.v[i], hn::Shuffle2301(x.v[i]));
  }
#endif
  return x;
}

// The scales of a group.
struct Int4Scales {
  alignas(64) uint32_t word[kPack];                // the same for all quarters of a block
  alignas(64) float scale[kPack], inverse[kPack];  // of each quarter, and 1 / scale
};

// Makes the words and scales of a group from the largest keys of its quarters.
SIMD_FN void scales_of(const UPack& keys, Int4Scales& scales) {
  constexpr int32_t kInfinity = 0x7f800000, kSmallest = 5 << 23;
  const auto one = hn::Set(DF(), 1.0f);
  UPack wanted;  // magnitudes, which have the order of their bits
  SIMD_UNROLL
  for (int i = 0; i < kParts; ++i)
    wanted.v[i] = hn::BitCast(
        DU(), hn::Div(hn::BitCast(DF(), hn::ShiftRight<1>(keys.v[i])), hn::Set(DF(), kInt4Steps)));
  const UPack largest =
      over_blocks(wanted, [](auto a, auto b) SIMD_INLINE { return hn::Max(a, b); });
  UPack fields, exponents;
  SIMD_UNROLL
  for (int i = 0; i < kParts; ++i) {
    const auto most = hn::BitCast(DI(), largest.v[i]);
    const auto finite = hn::Lt(most, hn::Set(DI(), kInfinity));
    const auto usual = hn::And(finite, hn::Gt(most, hn::Set(DI(), kSmallest - 1)));
    // A block that comes back as zeros or NaN needs only its word, made below; its other results may be any numbers.
    const auto unit = hn::Sub(hn::And(most, hn::Set(DI(), kInfinity)), hn::Set(DI(), 4 << 23));
    const auto per_unit = hn::BitCast(DF(), hn::Sub(hn::Set(DI(), 254 << 23), unit));
    const auto exact = hn::Mul(hn::BitCast(DF(), wanted.v[i]), per_unit);
    const auto multiple = hn::Max(hn::Ceil(exact), one);
    // The scale has the other sign than the value.
    const auto key = keys.v[i];
    const auto positive = hn::AndNot(hn::ShiftLeft<31>(key), hn::Set(DU(), 0x80000000u));
    const auto sign = hn::IfThenElseZero(hn::Gt(key, hn::Set(DU(), 1)), positive);
    const auto magnitude = hn::Mul(multiple, hn::BitCast(DF(), unit));
    const auto scale = hn::BitCast(DF(), hn::Or(hn::BitCast(DU(), magnitude), sign));
    hn::Store(scale, DF(), scales.scale + i * kLanes);
    hn::Store(hn::Div(one, scale), DF(), scales.inverse + i * kLanes);
    // 2^23 leaves no bits behind the point.
    const auto less = hn::BitCast(DU(), hn::Add(multiple, hn::Set(DF(), 8388607.0f)));
    const auto field = hn::Or(hn::And(less, hn::Set(DU(), 31)), hn::ShiftRight<26>(sign));
    fields.v[i] = hn::IfThenElseZero(hn::RebindMask(DU(), usual), hn::Shl(field, field_bits(i)));
    const auto unusual = hn::IfThenElse(finite, hn::Zero(DI()), hn::Set(DI(), kInt4NaN));
    exponents.v[i] = hn::BitCast(DU(), hn::IfThenElse(usual, hn::ShiftRight<23>(unit), unusual));
  }
  const UPack all_fields =
      over_blocks(fields, [](auto a, auto b) SIMD_INLINE { return hn::Or(a, b); });
  SIMD_UNROLL
  for (int i = 0; i < kParts; ++i)
    hn::Store(hn::Or(all_fields.v[i], exponents.v[i]), DU(), scales.word + i * kLanes);
}

// Codes of values before they are packed: of each, the lowest four bits count. Where kWholeCodes is true, all bits are
// those of the code, which may be 8 yet.
#if HWY_TARGET == HWY_AVX3
constexpr bool kWholeCodes = true;
SIMD_FN hn::Vec<DI> code_of(hn::Vec<DF> x) {
  return hn::Vec<DI>{_mm512_cvtps_epi32(x.raw)};
}
SIMD_FN hn::Vec<DF> value_of(hn::Vec<DI> code) {
  return hn::ConvertTo(DF(), code);
}
#else
constexpr bool kWholeCodes = false;
// 1.5 * 2^23 leaves no bits behind the point: the lowest ones are the integer. |x| is below 2^22.
constexpr float kNoFraction = 12582912.0f;
SIMD_FN hn::Vec<DI> code_of(hn::Vec<DF> x) {
  return hn::BitCast(DI(), hn::Add(x, hn::Set(DF(), kNoFraction)));
}
SIMD_FN hn::Vec<DF> value_of(hn::Vec<DI> code) {
  return hn::Sub(hn::BitCast(DF(), code), hn::Set(DF(), kNoFraction));
}
#endif

// Codes of a block: by quarter, of the first and the second value of each byte.
struct Int4Codes {
  IPack first[kQuarters], second[kQuarters];
};

// Stores the codes of a block of n values.
SIMD_FN void store_codes(const Int4Codes& codes, int64_t n, std::byte* to) {
  const int64_t bytes = (n + 1) / 2;
  alignas(64) uint8_t last[kInt4BlockBytes];
  auto* out = bytes == kInt4BlockBytes ? reinterpret_cast<uint8_t*>(to) : last;
#if HWY_TARGET == HWY_AVX3
  // The bytes of four packs, which 8 leaves for 7: by 128 bits four of each, so that 32 bits of each have to move.
  const auto bytes_of = [](const IPack(&x)[kQuarters]) SIMD_INLINE {
    const __m512i low = _mm512_packs_epi32(x[0].v[0].raw, x[1].v[0].raw);
    const __m512i high = _mm512_packs_epi32(x[2].v[0].raw, x[3].v[0].raw);
    return _mm512_min_epi8(_mm512_packs_epi16(low, high), _mm512_set1_epi8(7));
  };
  alignas(64) static constexpr int32_t kPlaces[kPack] = {0, 4, 8,  12, 1, 5, 9,  13,
                                                         2, 6, 10, 14, 3, 7, 11, 15};
  const __m512i high = _mm512_slli_epi16(bytes_of(codes.second), 4);
  const __m512i two = _mm512_ternarylogic_epi32(_mm512_set1_epi8(15), bytes_of(codes.first), high,
                                                0xca);  // bit by bit
  _mm512_storeu_si512(out, _mm512_permutexvar_epi32(_mm512_load_si512(kPlaces), two));
#else
  const auto nibble = hn::Set(DI(), 15);
  SIMD_UNROLL
  for (int q = 0; q < kQuarters; ++q)
    for (int i = 0; i < kParts; ++i) {
      const auto low = hn::And(codes.first[q].v[i], nibble);
      const auto high = hn::ShiftLeft<4>(hn::And(codes.second[q].v[i], nibble));
      hn::StoreU(hn::DemoteTo(DByte(), hn::Or(low, high)), DByte(), out + q * kPack + i * kLanes);
    }
#endif
  if (out == last) std::memcpy(to, last, static_cast<size_t>(bytes));
}

// Stores the codes of a block of n values; `inverse` has those of its quarters.
SIMD_FN void pack_codes(const Int4Block& block, int64_t n, const float* inverse, std::byte* to) {
  Int4Codes codes;
  SIMD_UNROLL
  for (int q = 0; q < kQuarters; ++q) {
    const auto by = hn::Set(DF(), inverse[q]);
    const auto code = [&](auto x) SIMD_INLINE {
      const auto steps = hn::Mul(x, by);
      return code_of(kWholeCodes ? steps : hn::Min(steps, hn::Set(DF(), 7.0f)));
    };
    for (int i = 0; i < kParts; ++i) {
      codes.first[q].v[i] = code(block.first[q].v[i]);
      codes.second[q].v[i] = code(block.second[q].v[i]);
    }
  }
  store_codes(codes, n, to);
}

// Packs blocks [begin, end) of a part of n values. The scales of a group are made before the codes of the one before
// it: they are one long chain of operations, beside which the processor packs these codes.
// The source has look(b, blocks, f), which is called once for each group, while the values of the group before are
// still in use, and calls f(k, block) for each of `blocks` blocks from b on, and with any of them for the other k of a
// group; load(b, block), which sets `block` to block b; and fetch(b), which asks for the memory of blocks some time
// after block b. Values beyond the part's end are 0.
template <class Source>
SIMD_FN void pack_blocks(Source& source, int64_t begin, int64_t end, int64_t n, std::byte* packed) {
  std::byte* const codes = packed + int4_blocks(n) * kInt4Word;
  const int64_t whole = n / kInt4Block;
  Int4Scales both[2];
  Int4Scales *here = both, *next = both + 1;
  for (int64_t group = begin - kGroup; group < end; group += kGroup) {
    if (group + kGroup < end) {
      const int64_t blocks = std::min<int64_t>(kGroup, end - group - kGroup);
      QuarterKeys keys[kGroup];
      source.look(group + kGroup, blocks, [&](int64_t k, const Int4Block& block) SIMD_INLINE {
        keys[k] = largest_keys(block);
      });
      scales_of(joined(keys), *next);
    }
    const int64_t last = std::min<int64_t>(group + kGroup, end);
    for (int64_t b = std::max(group, begin); b < last; ++b) {
      const int64_t lane = (b - group) * kQuarters;
      const uint32_t word = here->word[lane];
      std::memcpy(packed + b * kInt4Word, &word, sizeof word);
      std::byte* const to = codes + b * kInt4BlockBytes;
      source.fetch(b);
      if (word == 0 || word == kInt4NaN) {
        const int64_t count = std::min(kInt4Block, n - b * kInt4Block);
        std::memset(to, 0, static_cast<size_t>((count + 1) / 2));
        continue;
      }
      Int4Block block;
      source.load(b, block);
      if (b < whole)
        pack_codes(block, kInt4Block, here->inverse + lane, to);
      else
        pack_codes(block, n - b * kInt4Block, here->inverse + lane, to);
    }
    std::swap(here, next);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#endif  // DSTRAIN_SIMD_INT4_PACK_INL_H
