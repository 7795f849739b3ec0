// Blocks of optimizer state in 8 bits (runtime/core/blocks/dynamic_code.h). Included once per Highway target, hence the
// toggled include guard.
#if defined(DSTRAIN_SIMD_BLOCKS_8BIT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DSTRAIN_SIMD_BLOCKS_8BIT_INL_H
#undef DSTRAIN_SIMD_BLOCKS_8BIT_INL_H
#else
#define DSTRAIN_SIMD_BLOCKS_8BIT_INL_H
#endif

#include <algorithm>
#include <cstring>

#include "kernels/cpu/memory_bound/optimizers/blocks_8bit.h"
#include "kernels/cpu/memory_bound/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {

using DByte = hn::Rebind<uint8_t, DF>;

using VF = hn::Vec<DF>;
using VI = hn::Vec<DI>;

// Returns table[index], where 0 <= index < 8.
SIMD_FN VF chosen(const SmallTable& table, VI index) {
#if HWY_TARGET == HWY_SCALAR
  return hn::GatherIndex(DF(), table.data(), index);
#else
  return hn::TableLookupLanes(hn::LoadU(DF(), table.data()), hn::IndicesFromVec(DF(), index));
#endif
}

// Returns the magnitudes at places [tables.first, tables.last], as dynamic_magnitude() has them.
template <bool kSigned>
SIMD_FN VF magnitudes_at(const CodeTables& tables, VI place) {
  // The decade's number is the exponent of what lies in the middle of two places.
  const VF middle = hn::Add(hn::ConvertTo(DF(), place), hn::Set(DF(), 0.5f));
  const VI bits = hn::BitCast(DI(), middle);
  const VI exponent = hn::Sub(hn::ShiftRight<23>(bits), hn::Set(DI(), 127));
  const VI mantissa = hn::Or(hn::And(bits, hn::Set(DI(), 0x7fffff)), hn::Set(DI(), 0x3f800000));
  const VF share = hn::Sub(hn::BitCast(DF(), mantissa), hn::Set(DF(), 1.0f));
  const VF scaled = hn::Mul(hn::Set(DF(), 0.9f), share);
  const VF shifted = hn::Add(scaled, hn::Set(DF(), 0.1f));
  // Decades begin at exponent 0 (signed) or 1.
  const VI decade = kSigned ? hn::Add(exponent, hn::Set(DI(), 1)) : exponent;
  const VF value = hn::Mul(chosen(tables.decades, hn::And(decade, hn::Set(DI(), 7))), shifted);
  const auto is_last = hn::RebindMask(DF(), hn::Eq(place, hn::Set(DI(), tables.last)));
  return hn::IfThenElse(is_last, hn::Set(DF(), 1.0f), value);
}

// Returns the place of the magnitude that is nearest to x >= 0. What is no number has some place.
template <bool kSigned>
SIMD_FN VI nearest_place(const CodeTables& tables, VF x) {
  VI decade = hn::Zero(DI());
  for (size_t d = 0; d + 1 < kDecades.size(); ++d) {
    const auto above = hn::RebindMask(DI(), hn::Ge(x, hn::Set(DF(), kDecades[d])));
    decade = hn::Sub(decade, hn::VecFromMask(DI(), above));
  }
  const VF between =
      hn::Add(hn::Mul(x, chosen(tables.slopes, decade)), chosen(tables.offsets, decade));
  const VI last = hn::Set(DI(), tables.last - 1), first = hn::Set(DI(), tables.first);
  const VI low = hn::Max(hn::Min(hn::ConvertTo(DI(), between), last), first);
  const VI high = hn::Add(low, hn::Set(DI(), 1));
  const VF middle =
      hn::Mul(hn::Add(magnitudes_at<kSigned>(tables, low), magnitudes_at<kSigned>(tables, high)),
              hn::Set(DF(), 0.5f));
  return hn::IfThenElse(hn::RebindMask(DI(), hn::Gt(x, middle)), high, low);
}

// Returns the values of codes, relative to the absmax.
template <bool kSigned>
SIMD_FN Pack values_of(const CodeTables& tables, const uint8_t* codes, Full = {}) {
  Pack r;
  SIMD_UNROLL
  for (int i = 0; i < kParts; ++i) {
    const VI code = hn::PromoteTo(DI(), hn::LoadU(DByte(), codes + i * kLanes));
    if constexpr (kSigned) {
      const VI number = hn::Sub(code, hn::Set(DI(), kSignedZero));
      const VF magnitude = magnitudes_at<kSigned>(tables, hn::Abs(number));
      r.v[i] = hn::CopySign(magnitude, hn::BitCast(DF(), number));
    } else {
      r.v[i] = magnitudes_at<kSigned>(tables, hn::Add(code, hn::Set(DI(), tables.first)));
    }
  }
  return r;
}
template <bool kSigned>
SIMD_FN Pack values_of(const CodeTables& tables, const uint8_t* codes, First lanes) {
  alignas(64) uint8_t buffer[kPack] = {};
  std::memcpy(buffer, codes, static_cast<size_t>(lanes.n));
  return values_of<kSigned>(tables, buffer);
}

// Stores the codes of values, which are relative to the absmax.
template <bool kSigned>
SIMD_FN void store_codes_of(const CodeTables& tables, Pack x, uint8_t* codes, Full = {}) {
  SIMD_UNROLL
  for (int i = 0; i < kParts; ++i) {
    const VI place = nearest_place<kSigned>(tables, hn::Abs(x.v[i]));
    VI code = hn::Sub(place, hn::Set(DI(), tables.first));
    if constexpr (kSigned) {
      const VI zero = hn::Set(DI(), kSignedZero);
      const VI limited = hn::Max(hn::Set(DI(), 1), hn::Min(code, zero));
      const auto negative = hn::RebindMask(DI(), hn::Lt(x.v[i], hn::Zero(DF())));
      code = hn::IfThenElse(negative, hn::Sub(zero, limited), hn::Add(zero, code));
    }
#if HWY_TARGET == HWY_AVX3
    hn::StoreU(hn::TruncateTo(DByte(), hn::BitCast(DU(), code)), DByte(), codes + i * kLanes);
#else
    hn::StoreU(hn::DemoteTo(DByte(), code), DByte(), codes + i * kLanes);
#endif
  }
}
template <bool kSigned>
SIMD_FN void store_codes_of(const CodeTables& tables, Pack x, uint8_t* codes, First lanes) {
  alignas(64) uint8_t buffer[kPack];
  store_codes_of<kSigned>(tables, x, buffer);
  std::memcpy(codes, buffer, static_cast<size_t>(lanes.n));
}

// A block of a slot while it is updated. kSigned: its values may be below 0.
template <bool kSigned>
class BlockOf8Bits {
 public:
  // The block begins with element `begin` of the slot.
  SIMD_FN BlockOf8Bits(const Slot8Bits& slot, int64_t begin)
      : codes_(slot.codes + begin),
        absmax_(slot.absmax + begin / kStateBlock),
        old_(all(*absmax_)),
        most_(all(0)) {}

  // Returns the values of the pack at element `i` of the block.
  template <class Lanes>
  SIMD_FN Pack old(int64_t i, Lanes n) const {
    return values_of<kSigned>(tables(), codes_ + i, n) * old_;
  }
  // Takes the new values of that pack.
  template <class Lanes>
  SIMD_FN void take(Pack x, int64_t i, Lanes n) {
    store(x, values_ + i);
    most_ = maximum(absolute(keep(n, x)), most_);
  }
  // Stores the block of `count` elements.
  SIMD_FN void finish(int64_t count) const {
    const float most = largest(most_);
    *absmax_ = most;
    const Pack divisor = all(most > 0 ? most : 1);
    for_packs(0, count, [&](int64_t i, auto n) SIMD_INLINE {
      store_codes_of<kSigned>(tables(), load(values_ + i) / divisor, codes_ + i, n);
    });
  }

 private:
  static constexpr const CodeTables& tables() { return kSigned ? kSignedCode : kUnsignedCode; }

  uint8_t* const codes_;
  float* const absmax_;
  const Pack old_;
  Pack most_;
  alignas(64) float values_[kStateBlock];
};

// Calls f(begin, end) for each block of elements [begin, end), of which `begin` begins a block.
template <class F>
SIMD_FN void for_state_blocks(int64_t begin, int64_t end, const F& f) {
  for (int64_t at = begin; at < end; at += kStateBlock) f(at, std::min(at + kStateBlock, end));
}

}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#endif  // DSTRAIN_SIMD_BLOCKS_8BIT_INL_H
