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

// One lane for each quarter.
using D4 = hn::CappedTag<float, kQuarters>;
using D4I = hn::CappedTag<int32_t, kQuarters>;
using D4U = hn::CappedTag<uint32_t, kQuarters>;
constexpr int kLanes4 = static_cast<int>(hn::MaxLanes(D4()));
constexpr int kParts4 = kQuarters / kLanes4;

template <class D>
struct Four {
  hn::Vec<D> v[kParts4];
};

// Returns a lane of `x` in all lanes.
template <int quarter>
SIMD_FN hn::Vec<DF> broadcast(const Four<D4>& x) {
  return hn::Set(DF(), hn::ExtractLane(x.v[quarter / kLanes4], quarter % kLanes4));
}
// Calls f(q, lane q of x in all lanes) for the quarters in order.
template <class F>
SIMD_FN void for_quarters(const Four<D4>& x, const F& f) {
  f(0, broadcast<0>(x));
  f(1, broadcast<1>(x));
  f(2, broadcast<2>(x));
  f(3, broadcast<3>(x));
}

// --- a block's values ------------------------------------------------------------------------

SIMD_FN void from_floats(const float* x, Int4Block& block) {
  SIMD_UNROLL
  for (int q = 0; q < kQuarters; ++q)
    for (int i = 0; i < kParts; ++i)
      hn::LoadInterleaved2(DF(), x + 2 * (q * kPack + i * kLanes), block.first[q].v[i],
                           block.second[q].v[i]);
}
SIMD_FN void to_floats(const Int4Block& block, float* x) {
  SIMD_UNROLL
  for (int q = 0; q < kQuarters; ++q)
    for (int i = 0; i < kParts; ++i)
      hn::StoreInterleaved2(block.first[q].v[i], block.second[q].v[i], DF(),
                            x + 2 * (q * kPack + i * kLanes));
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

// Returns the largest key of each quarter.
SIMD_FN Four<D4U> largest_keys(const Int4Block& block) {
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
  const auto all_four = hn::Max(hn::BitCast(DU(), hn::InterleaveLower(wide, low, high)),
                                hn::BitCast(DU(), hn::InterleaveUpper(wide, low, high)));
#if HWY_TARGET == HWY_AVX3
  const hn::Full256<uint32_t> d8;
  const auto eight = hn::Max(hn::LowerHalf(d8, all_four), hn::UpperHalf(d8, all_four));
#else
  const auto eight = all_four;
#endif
  return {{hn::Max(hn::LowerHalf(D4U(), eight), hn::UpperHalf(D4U(), eight))}};
#endif
}

SIMD_FN uint32_t largest_of(const Four<D4U>& x) {
  uint32_t most = 0;
  for (const auto v : x.v) most = std::max(most, hn::GetLane(hn::MaxOfLanes(D4U(), v)));
  return most;
}
// Returns the bits of all lanes.
SIMD_FN uint32_t joined(const Four<D4U>& x) {
  alignas(16) uint32_t lanes[kQuarters];
  for (int i = 0; i < kParts4; ++i) hn::Store(x.v[i], D4U(), lanes + i * kLanes4);
  return lanes[0] | lanes[1] | lanes[2] | lanes[3];
}
// Returns the first bits of the fields of the quarters in a word.
SIMD_FN hn::Vec<D4U> field_bits(int part) {
  alignas(16) static constexpr uint32_t kBits[kQuarters] = {8, 14, 20, 26};
  return hn::Load(D4U(), kBits + part * kLanes4);
}

// The scales of a block.
struct Int4Scales {
  uint32_t word;
  bool any;          // not all values come back as zeros or NaN
  Four<D4> inverse;  // 1 / scale, if so
};

SIMD_FN Int4Scales scales_of(const Four<D4U>& keys) {
  constexpr uint32_t kInfinity = 0x7f800000u, kSign = 0x80000000u;
  Int4Scales scales{};
  const uint32_t largest = largest_of(keys) >> 1;
  const uint32_t wanted = std::bit_cast<uint32_t>(std::bit_cast<float>(largest) / kInt4Steps);
  const uint32_t exponent = (wanted >> 23) - 4;
  if (largest >= kInfinity || wanted < (5u << 23)) {
    scales.word = largest >= kInfinity ? 255 : 0;
    return scales;
  }
  scales.any = true;
  const auto per_unit = hn::Set(D4(), std::bit_cast<float>((254 - exponent) << 23));
  const auto unit = hn::Set(D4(), std::bit_cast<float>(exponent << 23));
  Four<D4U> fields;
  for (int i = 0; i < kParts4; ++i) {
    const auto key = keys.v[i], magnitude = hn::ShiftRight<1>(key);
    const auto exact =
        hn::Mul(hn::Div(hn::BitCast(D4(), magnitude), hn::Set(D4(), kInt4Steps)), per_unit);
    const auto below = hn::ConvertTo(D4I(), exact);
    const auto whole = hn::ConvertTo(D4(), below);
    const auto up = hn::IfThenElseZero(hn::Lt(whole, exact), hn::Set(D4(), 1.0f));
    const auto multiple = hn::Max(hn::Add(whole, up), hn::Set(D4(), 1.0f));
    // The scale has the other sign than the value.
    const auto positive = hn::AndNot(hn::ShiftLeft<31>(key), hn::Set(D4U(), kSign));
    const auto sign = hn::IfThenElseZero(hn::Ne(magnitude, hn::Zero(D4U())), positive);
    const auto scale = hn::BitCast(D4(), hn::Or(hn::BitCast(D4U(), hn::Mul(multiple, unit)), sign));
    scales.inverse.v[i] = hn::Div(hn::Set(D4(), 1.0f), scale);
    const auto less =
        hn::Sub(hn::BitCast(D4U(), hn::ConvertTo(D4I(), multiple)), hn::Set(D4U(), 1));
    fields.v[i] = hn::Shl(hn::Or(less, hn::ShiftRight<26>(sign)), field_bits(i));
  }
  scales.word = exponent | joined(fields);
  return scales;
}

// Returns bits whose lowest ones are x rounded to the nearest even integer, in two's complement: 1.5 * 2^23 leaves no
// bits behind the point. |x| is below 2^22.
SIMD_FN hn::Vec<DU> code_bits(hn::Vec<DF> x) {
  return hn::BitCast(DU(), hn::Add(x, hn::Set(DF(), 12582912.0f)));
}

// Packs a block of n values, whose word goes to `word` and whose codes to `to`.
SIMD_FN void pack_block(const Int4Block& block, int64_t n, std::byte* word, std::byte* to) {
  const Int4Scales scales = scales_of(largest_keys(block));
  std::memcpy(word, &scales.word, sizeof scales.word);
  const int64_t bytes = (n + 1) / 2;
  if (!scales.any) {
    std::memset(to, 0, static_cast<size_t>(bytes));
    return;
  }
  const auto nibble = hn::Set(DU(), 15);
  const auto most = hn::Set(DF(), 7.0f);
  alignas(64) uint8_t last[kInt4BlockBytes];
  auto* out = bytes == kInt4BlockBytes ? reinterpret_cast<uint8_t*>(to) : last;
  for_quarters(scales.inverse, [&](int q, auto inverse) SIMD_INLINE {
    SIMD_UNROLL
    for (int i = 0; i < kParts; ++i) {
      const auto low = code_bits(hn::Min(hn::Mul(block.first[q].v[i], inverse), most));
      const auto high = code_bits(hn::Min(hn::Mul(block.second[q].v[i], inverse), most));
      const auto two = hn::Or(hn::And(low, nibble), hn::ShiftLeft<4>(hn::And(high, nibble)));
#if HWY_TARGET == HWY_AVX3
      hn::StoreU(hn::TruncateTo(DByte(), two), DByte(), out + q * kPack);
#else
      hn::StoreU(hn::DemoteTo(DByte(), hn::BitCast(DI(), two)), DByte(), out + q * kPack + i * kLanes);
#endif
    }
  });
  if (out == last) std::memcpy(to, last, static_cast<size_t>(bytes));
}

// --- adding ----------------------------------------------------------------------------------

// Returns the scales of the quarters: infinite ones in a block of NaNs, whose codes are 0.
SIMD_FN Four<D4> scales_in(uint32_t word) {
  const auto unit = hn::Set(D4(), std::bit_cast<float>((word & 255) << 23));
  Four<D4> scales;
  for (int i = 0; i < kParts4; ++i) {
    const auto field = hn::Shr(hn::Set(D4U(), word), field_bits(i));
    const auto multiple = hn::Add(hn::And(field, hn::Set(D4U(), 31)), hn::Set(D4U(), 1));
    const auto sign = hn::ShiftLeft<26>(hn::And(field, hn::Set(D4U(), 32)));
    const auto scale = hn::Mul(hn::ConvertTo(D4(), hn::BitCast(D4I(), multiple)), unit);
    scales.v[i] = hn::BitCast(D4(), hn::Xor(hn::BitCast(D4U(), scale), sign));
  }
  return scales;
}

// Adds the values of codes, of which there are two in a byte. A product with the scale is exact, so that a fused sum
// has
// the bits of one that is not.
class CodeValues {
 public:
#if HWY_TARGET == HWY_AVX3
  SIMD_FN explicit CodeValues(hn::Vec<DF> scale)
      : values_(hn::Mul(hn::Load(DF(), kCodes), scale)) {}
  SIMD_FN void add_low(hn::Vec<DI> two, hn::Vec<DF>& sum) const {
    add(hn::And(two, hn::Set(DI(), 15)), sum);
  }
  SIMD_FN void add_high(hn::Vec<DI> two, hn::Vec<DF>& sum) const {
    add(hn::ShiftRight<4>(two), sum);
  }

 private:
  alignas(64) static constexpr float kCodes[16] = {0,  1,  2,  3,  4,  5,  6,  7,
                                                   -8, -7, -6, -5, -4, -3, -2, -1};
  SIMD_FN void add(hn::Vec<DI> code, hn::Vec<DF>& sum) const {
    sum = hn::Add(sum, hn::TableLookupLanes(values_, hn::IndicesFromVec(DF(), code)));
  }
  hn::Vec<DF> values_;
#else
  SIMD_FN explicit CodeValues(hn::Vec<DF> scale) : scale_(scale) {}
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

// Sets `sum` to the values of block b of each part, added in order.
SIMD_FN void sum_block(const PackedParts& parts, int64_t b, Int4Block& sum) {
  const int64_t blocks = int4_blocks(parts.n);
  const int64_t bytes = (std::min(kInt4Block, parts.n - b * kInt4Block) + 1) / 2;
  SIMD_UNROLL
  for (int q = 0; q < kQuarters; ++q) sum.first[q] = sum.second[q] = all(0);
  alignas(64) uint8_t last[kInt4BlockBytes];
  if (bytes < kInt4BlockBytes) std::memset(last, 0, sizeof last);
  for (int64_t part = 0; part < parts.count; ++part) {
    const std::byte* packed = parts.packed + part * parts.stride;
    uint32_t word;
    std::memcpy(&word, packed + b * kInt4Word, sizeof word);
    const auto* from =
        reinterpret_cast<const uint8_t*>(packed + blocks * kInt4Word + b * kInt4BlockBytes);
    if (bytes < kInt4BlockBytes) {
      std::memcpy(last, from, static_cast<size_t>(bytes));
      from = last;
    }
    for_quarters(scales_in(word), [&](int q, auto scale) SIMD_INLINE {
      const CodeValues values(scale);
      SIMD_UNROLL
      for (int i = 0; i < kParts; ++i) {
        const auto two = hn::PromoteTo(DI(), hn::LoadU(DByte(), from + q * kPack + i * kLanes));
        values.add_low(two, sum.first[q].v[i]);
        values.add_high(two, sum.second[q].v[i]);
      }
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#endif  // DSTRAIN_SIMD_INT4_INL_H
