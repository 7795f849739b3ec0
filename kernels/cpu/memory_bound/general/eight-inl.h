// Squares of 8 x 8 elements, whose rows and columns are exchanged. Included once per Highway target, hence the toggled
// include guard.
#if defined(DSTRAIN_SIMD_EIGHT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DSTRAIN_SIMD_EIGHT_INL_H
#undef DSTRAIN_SIMD_EIGHT_INL_H
#else
#define DSTRAIN_SIMD_EIGHT_INL_H
#endif

#include "kernels/cpu/memory_bound/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET != HWY_SCALAR
// Eight f32, and eight elements of a type widened to them.
using D8 = hn::CappedTag<float, 8>;
using V8 = hn::Vec<D8>;
constexpr int kEight = 8;

SIMD_FN V8 load_eight(const float* p) {
  return hn::LoadU(D8(), p);
}
SIMD_FN V8 load_eight(const int32_t* p) {
  return hn::ConvertTo(D8(), hn::LoadU(hn::RebindToSigned<D8>(), p));
}
SIMD_FN V8 load_eight(const bf16* p) {
  const hn::RebindToUnsigned<D8> wide;
  const auto half = hn::LoadU(hn::Rebind<uint16_t, D8>(), reinterpret_cast<const uint16_t*>(p));
  return hn::BitCast(D8(), hn::ShiftLeft<16>(hn::PromoteTo(wide, half)));
}
SIMD_FN V8 load_eight(const f16* p) {
  const auto half = hn::LoadU(hn::Rebind<uint16_t, D8>(), reinterpret_cast<const uint16_t*>(p));
  return hn::PromoteTo(D8(), hn::BitCast(hn::Rebind<hwy::float16_t, D8>(), half));
}

// Loads 8 columns of 8 elements, `stride` apart, as rows.
template <class T>
SIMD_FN void load_eight_by_eight(const T* from, int64_t stride, V8 (&rows)[kEight]) {
  const D8 d;
  const hn::Repartition<double, D8> pairs;
  V8 x[kEight], y[kEight];
  SIMD_UNROLL
  for (int i = 0; i < kEight; ++i) x[i] = load_eight(from + i * stride);
  SIMD_UNROLL
  for (int i = 0; i < kEight; i += 2) {
    y[i] = hn::InterleaveLower(d, x[i], x[i + 1]);
    y[i + 1] = hn::InterleaveUpper(d, x[i], x[i + 1]);
  }
  SIMD_UNROLL
  for (int i = 0; i < kEight; i += 4)
    for (int k = 0; k < 2; ++k) {
      const auto a = hn::BitCast(pairs, y[i + k]), b = hn::BitCast(pairs, y[i + 2 + k]);
      x[i + 2 * k] = hn::BitCast(d, hn::InterleaveLower(pairs, a, b));
      x[i + 2 * k + 1] = hn::BitCast(d, hn::InterleaveUpper(pairs, a, b));
    }
  SIMD_UNROLL
  for (int i = 0; i < 4; ++i) {
    rows[i] = hn::ConcatLowerLower(d, x[i + 4], x[i]);
    rows[i + 4] = hn::ConcatUpperUpper(d, x[i + 4], x[i]);
  }
}

#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#endif
