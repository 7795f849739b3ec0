// Blocks of int4 values (runtime/ir/quantized.h): packed, and added. Included once per Highway target, hence the
// toggled include guard.
#if defined(DSTRAIN_SIMD_INT4_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DSTRAIN_SIMD_INT4_INL_H
#undef DSTRAIN_SIMD_INT4_INL_H
#else
#define DSTRAIN_SIMD_INT4_INL_H
#endif

#include <algorithm>
#include <bit>
#include <cstring>

#include "hwy/cache_control.h"
#include "kernels/cpu/simd/codecs/int4_parts.h"
#include "kernels/cpu/simd/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {

// A byte has two neighbouring values. Those of a quarter are in a pack of the first and a pack of the second ones, so
// that neither packing nor adding has to move them.
constexpr int kQuarters = 4;
static_assert(kInt4Quarter == 2 * kPack);
using DByte = hn::Rebind<uint8_t, DF>;

struct Int4Block {
  Pack first[kQuarters], second[kQuarters];
};

// The scales of four blocks are made together: a lane for each quarter of each of them fills a pack.
constexpr int kGroup = kPack / kQuarters;

// --- a block's values ------------------------------------------------------------------------

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

template <>
SIMD_FN void store_block(const Int4Block& block, bf16* y, int64_t n) {
  alignas(64) bf16 some[kInt4Block];
  auto* const to = reinterpret_cast<uint32_t*>(n == kInt4Block ? y : some);
  // Rounds to nearest, ties to even, as `narrow` does, and leaves 16 bits above those that are wanted.
  const auto rounded = [](auto x) SIMD_INLINE {
    const auto bits = hn::BitCast(DU(), x);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(DU(), 1));
    const auto number = hn::Add(hn::Add(bits, hn::Set(DU(), 0x7fff)), odd);
    return hn::IfThenElse(hn::RebindMask(DU(), hn::Eq(x, x)), number,
                          hn::Or(bits, hn::Set(DU(), 0x400000)));
  };
  const auto above = hn::Set(DU(), 0xffff0000u);
  SIMD_UNROLL
  for (int q = 0; q < kQuarters; ++q)
    for (int i = 0; i < kParts; ++i) {
      const auto low = hn::ShiftRight<16>(rounded(block.first[q].v[i]));
      hn::StoreU(hn::Or(low, hn::And(rounded(block.second[q].v[i]), above)), DU(),
                 to + q * kPack + i * kLanes);
    }
  if (n < kInt4Block) std::memcpy(y, some, static_cast<size_t>(n) * sizeof *y);
}

SIMD_FN void add_block(const Int4Block& other, Int4Block& block) {
  SIMD_UNROLL
  for (int q = 0; q < kQuarters; ++q) {
    block.first[q] = block.first[q] + other.first[q];
    block.second[q] = block.second[q] + other.second[q];
  }
}

// --- packing ---------------------------------------------------------------------------------

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

// Returns the first bits of the fields of the quarters in their words.
SIMD_FN hn::Vec<DU> field_bits(int part) {
  alignas(64) static constexpr uint32_t kBits[kPack] = {8, 14, 20, 26, 8, 14, 20, 26,
                                                        8, 14, 20, 26, 8, 14, 20, 26};
  return hn::Load(DU(), kBits + part * kLanes);
}

// The scales of a group.
struct Int4Scales {
  alignas(64) uint32_t word[kPack];  // the same for all quarters of a block
  alignas(64) float inverse[kPack];  // 1 / scale of each quarter
};

SIMD_FN void scales_of(const UPack& keys, Int4Scales& scales) {
  constexpr int32_t kInfinity = 0x7f800000, kSmallest = 5 << 23;
  const UPack largest = over_blocks(keys, [](auto a, auto b) SIMD_INLINE { return hn::Max(a, b); });
  const auto steps = hn::Set(DF(), kInt4Steps), one = hn::Set(DF(), 1.0f);
  UPack fields, exponents;
  SIMD_UNROLL
  for (int i = 0; i < kParts; ++i) {
    const auto most = hn::ShiftRight<1>(largest.v[i]);
    const auto wanted = hn::BitCast(DI(), hn::Div(hn::BitCast(DF(), most), steps));
    const auto finite = hn::Lt(hn::BitCast(DI(), most), hn::Set(DI(), kInfinity));
    const auto usual = hn::And(finite, hn::Gt(wanted, hn::Set(DI(), kSmallest - 1)));
    // The blocks that come back as zeros or NaN get any scale.
    const auto exponent = hn::IfThenElse(
        usual, hn::Sub(hn::ShiftRight<23>(wanted), hn::Set(DI(), 4)), hn::Set(DI(), 127));
    const auto per_unit =
        hn::BitCast(DF(), hn::ShiftLeft<23>(hn::Sub(hn::Set(DI(), 254), exponent)));
    const auto unit = hn::BitCast(DF(), hn::ShiftLeft<23>(exponent));
    const auto key = hn::IfThenElseZero(hn::RebindMask(DU(), usual), keys.v[i]),
               magnitude = hn::ShiftRight<1>(key);
    const auto exact = hn::Mul(hn::Div(hn::BitCast(DF(), magnitude), steps), per_unit);
    const auto whole = hn::ConvertTo(DF(), hn::ConvertTo(DI(), exact));
    const auto up = hn::IfThenElseZero(hn::Lt(whole, exact), one);
    const auto multiple = hn::Max(hn::Add(whole, up), one);
    // The scale has the other sign than the value.
    const auto positive = hn::AndNot(hn::ShiftLeft<31>(key), hn::Set(DU(), 0x80000000u));
    const auto sign = hn::IfThenElseZero(hn::Ne(magnitude, hn::Zero(DU())), positive);
    const auto scale = hn::BitCast(DF(), hn::Or(hn::BitCast(DU(), hn::Mul(multiple, unit)), sign));
    hn::Store(hn::Div(one, scale), DF(), scales.inverse + i * kLanes);
    const auto less = hn::Sub(hn::BitCast(DU(), hn::ConvertTo(DI(), multiple)), hn::Set(DU(), 1));
    fields.v[i] =
        hn::IfThenElseZero(hn::RebindMask(DU(), usual),
                           hn::Shl(hn::Or(less, hn::ShiftRight<26>(sign)), field_bits(i)));
    const auto unusual = hn::IfThenElse(finite, hn::Zero(DI()), hn::Set(DI(), kInt4NaN));
    exponents.v[i] = hn::BitCast(DU(), hn::IfThenElse(usual, exponent, unusual));
  }
  const UPack all_fields =
      over_blocks(fields, [](auto a, auto b) SIMD_INLINE { return hn::Or(a, b); });
  SIMD_UNROLL
  for (int i = 0; i < kParts; ++i)
    hn::Store(hn::Or(all_fields.v[i], exponents.v[i]), DU(), scales.word + i * kLanes);
}

// Returns bits whose lowest ones are x rounded to the nearest even integer, in two's complement: 1.5 * 2^23 leaves no
// bits behind the point. |x| is below 2^22.
SIMD_FN hn::Vec<DU> code_bits(hn::Vec<DF> x) {
  return hn::BitCast(DU(), hn::Add(x, hn::Set(DF(), 12582912.0f)));
}

// Stores the codes of a block of n values; `inverse` has those of its quarters.
SIMD_FN void pack_codes(const Int4Block& block, int64_t n, const float* inverse, std::byte* to) {
  const auto nibble = hn::Set(DU(), 15);
  const auto most = hn::Set(DF(), 7.0f);
  const int64_t bytes = (n + 1) / 2;
  alignas(64) uint8_t last[kInt4BlockBytes];
  auto* out = bytes == kInt4BlockBytes ? reinterpret_cast<uint8_t*>(to) : last;
  SIMD_UNROLL
  for (int q = 0; q < kQuarters; ++q) {
    const auto by = hn::Set(DF(), inverse[q]);
    for (int i = 0; i < kParts; ++i) {
      const auto low = code_bits(hn::Min(hn::Mul(block.first[q].v[i], by), most));
      const auto high = code_bits(hn::Min(hn::Mul(block.second[q].v[i], by), most));
#if HWY_TARGET == HWY_AVX3
      const auto two = hn::IfVecThenElse(nibble, low, hn::ShiftLeft<4>(high));  // bit by bit
      hn::StoreU(hn::TruncateTo(DByte(), two), DByte(), out + q * kPack);
#else
      const auto two = hn::Or(hn::And(low, nibble), hn::ShiftLeft<4>(hn::And(high, nibble)));
      hn::StoreU(hn::DemoteTo(DByte(), hn::BitCast(DI(), two)), DByte(),
                 out + q * kPack + i * kLanes);
#endif
    }
  }
  if (out == last) std::memcpy(to, last, static_cast<size_t>(bytes));
}

// Packs blocks [begin, end) of a part of n values. The scales of a group are made before the codes of the one before it:
// they are one long chain of operations, beside which the processor packs these codes.
// The source has prepare(b, blocks), which is called once for each group before its values are asked for, while those of
// the group before are still in use; load(b, block), which sets `block` to block b, with zeros beyond the part's end; and
// fetch(b), which asks for the memory of blocks that will be loaded some time after block b.
template <class Source>
SIMD_FN void pack_blocks(Source& source, int64_t begin, int64_t end, int64_t n, std::byte* packed) {
  std::byte* const codes = packed + int4_blocks(n) * kInt4Word;
  Int4Scales scales[2];
  const auto make_scales = [&](int64_t b) SIMD_INLINE {
    const int64_t blocks = std::min<int64_t>(kGroup, end - b);
    source.prepare(b, blocks);
    QuarterKeys keys[kGroup];
    SIMD_UNROLL
    for (int64_t k = 0; k < kGroup; ++k) {
      Int4Block block;
      source.load(b + std::min(k, blocks - 1), block);
      keys[k] = largest_keys(block);
    }
    scales_of(joined(keys), scales[b / kGroup % 2]);
  };
  if (begin < end) make_scales(begin);
  for (int64_t group = begin; group < end; group += kGroup) {
    if (group + kGroup < end) make_scales(group + kGroup);
    const Int4Scales& here = scales[group / kGroup % 2];
    const int64_t last = std::min<int64_t>(group + kGroup, end);
    for (int64_t b = group; b < last; ++b) {
      const int64_t lane = (b - group) * kQuarters;
      const uint32_t word = here.word[lane];
      std::memcpy(packed + b * kInt4Word, &word, sizeof word);
      const int64_t count = std::min(kInt4Block, n - b * kInt4Block);
      std::byte* const to = codes + b * kInt4BlockBytes;
      source.fetch(b);
      if (word == 0 || word == kInt4NaN) {
        std::memset(to, 0, static_cast<size_t>((count + 1) / 2));
        continue;
      }
      Int4Block block;
      source.load(b, block);
      pack_codes(block, count, here.inverse + lane, to);
    }
  }
}

// --- adding ----------------------------------------------------------------------------------

// Stores the scales of the quarters of the blocks from b on, `blocks` of them and a group at most: infinite ones in a
// block of NaNs, whose codes are 0.
SIMD_FN void load_scales(const std::byte* packed, int64_t b, int64_t blocks, float* scales) {
  alignas(16) uint32_t words[kGroup] = {};
  const std::byte* from = packed + b * kInt4Word;
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

// Adds the values of codes, of which there are two in a byte. A product with the scale is exact, so that a fused sum
// has the bits of one that is not.
class CodeValues {
 public:
#if HWY_TARGET == HWY_AVX3
  SIMD_FN explicit CodeValues(float scale)
      : values_(hn::Mul(hn::Load(DF(), kCodes), hn::Set(DF(), scale))) {}
  SIMD_FN void add_low(hn::Vec<DI> two, hn::Vec<DF>& sum) const {
    add(two, sum);
  }
  SIMD_FN void add_high(hn::Vec<DI> two, hn::Vec<DF>& sum) const {
    add(hn::ShiftRight<4>(two), sum);
  }

 private:
  alignas(64) static constexpr float kCodes[16] = {0,  1,  2,  3,  4,  5,  6,  7,
                                                   -8, -7, -6, -5, -4, -3, -2, -1};
  // Only the lowest four bits of `code` count, to the instruction too.
  SIMD_FN void add(hn::Vec<DI> code, hn::Vec<DF>& sum) const {
    sum = hn::Add(sum, hn::Vec<DF>{_mm512_permutexvar_ps(code.raw, values_.raw)});
  }
  hn::Vec<DF> values_;
#else
  SIMD_FN explicit CodeValues(float scale) : scale_(hn::Set(DF(), scale)) {}
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
  hn::Vec<DF> scale_;
#endif
};

// How far in front of what is loaded or stored memory is asked for, in bytes: what the processor asks for by itself comes
// too late, because computing a block takes most of the operations that it has in work at once.
constexpr int64_t kCodesAhead = 4096, kValuesAhead = 12288;

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

// Calls f(k, block) for `blocks` blocks from b on, a group at most, in order: `block` has the sums of the values of
// block b + k of each part, added in order.
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

#endif  // DSTRAIN_SIMD_INT4_INL_H
