// Blocks of int8 values (runtime/ir/quantized.h). Included once per Highway target, hence the toggled include guard.
#if defined(DSTRAIN_SIMD_INT8_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DSTRAIN_SIMD_INT8_INL_H
#undef DSTRAIN_SIMD_INT8_INL_H
#else
#define DSTRAIN_SIMD_INT8_INL_H
#endif

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "kernels/cpu/memory_bound/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {

using DCode = hn::Rebind<int8_t, DF>;

SIMD_FN IPack magnitudes(Pack a) {
  IPack r;
  SIMD_UNROLL
  for (int i = 0; i < kParts; ++i) r.v[i] = hn::BitCast(DI(), hn::Abs(a.v[i]));
  return r;
}

// Stores values rounded to the nearest even integer. |a| is below 128.
SIMD_FN void store_codes(Pack a, int8_t* to, Full = {}) {
  // 1.5 * 2^23 leaves no bits behind the point: the lowest ones are the code.
  constexpr float kWhole = 12582912.0f;
  SIMD_UNROLL
  for (int i = 0; i < kParts; ++i) {
    const auto bits = hn::BitCast(DI(), hn::Add(a.v[i], hn::Set(DF(), kWhole)));
#if HWY_TARGET == HWY_AVX3
    const hn::Rebind<uint8_t, DF> bytes;
    hn::StoreU(hn::TruncateTo(bytes, hn::BitCast(DU(), bits)), bytes,
               reinterpret_cast<uint8_t*>(to) + i * kLanes);
#else
    const auto code = hn::Sub(bits, hn::Set(DI(), std::bit_cast<int32_t>(kWhole)));
    hn::StoreU(hn::DemoteTo(DCode(), code), DCode(), to + i * kLanes);
#endif
  }
}
SIMD_FN void store_codes(Pack a, int8_t* to, First lanes) {
  alignas(64) int8_t codes[kPack];
  store_codes(a, codes);
  std::memcpy(to, codes, static_cast<size_t>(lanes.n));
}

SIMD_FN Pack load_codes(const int8_t* from, Full = {}) {
  Pack r;
  SIMD_UNROLL
  for (int i = 0; i < kParts; ++i)
    r.v[i] = hn::ConvertTo(DF(), hn::PromoteTo(DI(), hn::LoadU(DCode(), from + i * kLanes)));
  return r;
}
SIMD_FN Pack load_codes(const int8_t* from, First lanes) {
  alignas(64) int8_t codes[kPack] = {};
  std::memcpy(codes, from, static_cast<size_t>(lanes.n));
  return load_codes(codes);
}

// Returns the bits of the largest magnitude of x[0 .. n).
template <class T>
SIMD_FN int32_t largest_magnitude(const T* x, int64_t n) {
  IPack most;
  SIMD_UNROLL
  for (int k = 0; k < kParts; ++k) most.v[k] = hn::Zero(DI());
  for_packs(0, n, [&](int64_t i, auto lanes) SIMD_INLINE {
    const IPack here = magnitudes(load(x + i, lanes));
    SIMD_UNROLL
    for (int k = 0; k < kParts; ++k) most.v[k] = hn::Max(most.v[k], here.v[k]);
  });
  hn::Vec<DI> all_parts = most.v[0];
  for (int k = 1; k < kParts; ++k) all_parts = hn::Max(all_parts, most.v[k]);
  return hn::GetLane(hn::MaxOfLanes(DI(), all_parts));
}

// Packs n values, a block, whose scale is `scale` and goes to `scale_to`.
template <class T>
SIMD_FN void pack_int8(const T* x, int64_t n, float scale, std::byte* scale_to, int8_t* codes) {
  std::memcpy(scale_to, &scale, sizeof scale);
  if (!(scale > 0)) {
    std::memset(codes, 0, static_cast<size_t>(n));
    return;
  }
  const Pack inverse = all(1.0f / scale);
  for_packs(0, n, [=](int64_t i, auto lanes) SIMD_INLINE {
    store_codes(load(x + i, lanes) * inverse, codes + i, lanes);
  });
}

// Returns the scale of a block with this largest magnitude.
SIMD_FN float int8_scale(float largest) {
  if (!(largest <= std::numeric_limits<float>::max()))
    return std::numeric_limits<float>::quiet_NaN();
  const float scale = largest / 127.0f;
  return scale < std::numeric_limits<float>::min() ? 0 : scale;
}

}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#endif  // DSTRAIN_SIMD_INT8_INL_H
