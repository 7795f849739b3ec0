// Where the second moment of an element is above 0, as lanes of packs. Included once per Highway target, hence the toggled
// include guard.
#if defined(DSTRAIN_SIMD_SECOND_MOMENT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DSTRAIN_SIMD_SECOND_MOMENT_INL_H
#undef DSTRAIN_SIMD_SECOND_MOMENT_INL_H
#else
#define DSTRAIN_SIMD_SECOND_MOMENT_INL_H
#endif

#include "kernels/cpu/simd/codecs/bits-inl.h"
#include "kernels/cpu/simd/optimizers/second_moment.h"

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {

// Calls f(positive), where positive(i, lanes) returns the lanes of the pack at i whose second moment is above 0.
template <class F>
SIMD_FN void with_positive(const SecondMoment& v, const F& f) {
  if (v.bits)
    f([bits = v.bits](int64_t i, auto n)
          SIMD_INLINE { return mask_of(load_bits(bits + i / 8, n)); });
  else
    f([values = v.values](int64_t i, auto n)
          SIMD_INLINE { return greater(load(values + i, n), all(0)); });
}

}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#endif  // DSTRAIN_SIMD_SECOND_MOMENT_INL_H
