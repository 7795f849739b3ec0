// Truth values of the lanes of a pack as bits in memory: bit i % 8 of byte i / 8 is element i's. Included once per
// Highway target, hence the toggled include guard.
#if defined(DSTRAIN_SIMD_BITS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DSTRAIN_SIMD_BITS_INL_H
#undef DSTRAIN_SIMD_BITS_INL_H
#else
#define DSTRAIN_SIMD_BITS_INL_H
#endif

#include <cstring>

#include "kernels/cpu/memory_bound/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {

// Bit i is that of lane i.
SIMD_FN uint32_t bits_of(Mask mask) {
#if HWY_TARGET == HWY_AVX3
  return mask.v[0].raw;
#else
  uint32_t bits = 0;
  SIMD_UNROLL
  for (int i = 0; i < kParts; ++i) {
    uint8_t some[8] = {};
    hn::StoreMaskBits(DF(), mask.v[i], some);
    bits |= static_cast<uint32_t>(some[0] | some[1] << 8) << (i * kLanes);
  }
  return bits;
#endif
}

// Returns the lanes whose bit is set.
SIMD_FN Mask mask_of(uint32_t bits) {
#if HWY_TARGET == HWY_AVX3
  return {{hn::Mask<DF>{static_cast<__mmask16>(bits)}}};
#else
  Mask mask;
  SIMD_UNROLL
  for (int i = 0; i < kParts; ++i) {
    const uint32_t here = bits >> (i * kLanes);
    const uint8_t some[8] = {static_cast<uint8_t>(here), static_cast<uint8_t>(here >> 8)};
    mask.v[i] = hn::LoadMaskBits(DF(), some);
  }
  return mask;
#endif
}

// Loads the bits of the elements of a pack. The number of bytes is a constant for a whole one.
template <class Byte, class Lanes>
SIMD_FN uint32_t load_bits(const Byte* from, Lanes lanes) {
  uint16_t bits = 0;
  std::memcpy(&bits, from, static_cast<size_t>((lanes.n + 7) / 8));
  return bits;
}

// Stores them. What the last byte has beyond the elements is as `bits` has it.
template <class Byte, class Lanes>
SIMD_FN void store_bits(uint32_t bits, Byte* to, Lanes lanes) {
  const auto some = static_cast<uint16_t>(bits);
  std::memcpy(to, &some, static_cast<size_t>((lanes.n + 7) / 8));
}

}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#endif  // DSTRAIN_SIMD_BITS_INL_H
