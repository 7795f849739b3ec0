// exp and ln on packs, within 1e-6 relative of the exact value: a reduction of the argument, then the
// Taylor series of the reduced range, cut where it falls below f32's precision.
#if defined(DSTRAIN_SIMD_MATH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DSTRAIN_SIMD_MATH_INL_H
#undef DSTRAIN_SIMD_MATH_INL_H
#else
#define DSTRAIN_SIMD_MATH_INL_H
#endif

#include "kernels/cpu/simd/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {

// 2^n for integral n in [-126, 127].
HWY_INLINE Pack power_of_two(Pack n) {
  Pack r;
  SIMD_UNROLL
  for (int i = 0; i < kParts; ++i) {
    const auto biased = hn::Add(hn::NearestInt(n.v[i]), hn::Set(DI(), 127));
    r.v[i] = hn::BitCast(DF(), hn::ShiftLeft<23>(biased));
  }
  return r;
}

// e^x: 0 or subnormal far below, infinity above 88.7, NaN for NaN.
HWY_INLINE Pack exponential(Pack x) {
  x = maximum(all(-110.0f), minimum(all(100.0f), x));
  const Pack n = nearest(x * all(1.44269504088896341f));
  // ln 2 in two parts; n times the first one is exact.
  const Pack r = fnma(n, all(-2.12194440e-4f), fnma(n, all(0.693359375f), x));
  // e^r on |r| <= ln(2) / 2: 1 + r + r^2 q(r)
  Pack q = all(1.9841269841e-4f);
  q = fma(q, r, all(1.3888888889e-3f));
  q = fma(q, r, all(8.3333333333e-3f));
  q = fma(q, r, all(4.1666666667e-2f));
  q = fma(q, r, all(1.6666666667e-1f));
  q = fma(q, r, all(0.5f));
  const Pack y = fma(q, r * r, r) + all(1.0f);
  // In two factors, so that neither leaves the range of normal numbers.
  const Pack half = nearest(n * all(0.5f));
  return y * power_of_two(half) * power_of_two(n - half);
}

// ln x of a positive normal number.
HWY_INLINE Pack logarithm(Pack x) {
  Pack exponent, mantissa;
  SIMD_UNROLL
  for (int i = 0; i < kParts; ++i) {
    // x = 2^exponent * mantissa, with mantissa in [sqrt(1/2), sqrt(2)) up to rounding.
    const auto bits = hn::BitCast(DI(), x.v[i]);
    const auto n = hn::ShiftRight<23>(hn::Sub(bits, hn::Set(DI(), 0x3f3504f3)));
    exponent.v[i] = hn::ConvertTo(DF(), n);
    mantissa.v[i] = hn::BitCast(DF(), hn::Sub(bits, hn::ShiftLeft<23>(n)));
  }
  // ln m = 2 artanh((m - 1) / (m + 1))
  const Pack s = (mantissa - all(1)) / (mantissa + all(1)), z = s * s;
  Pack q = fma(z, all(2.0f / 9), all(2.0f / 7));
  q = fma(fma(q, z, all(2.0f / 5)), z, all(2.0f / 3));
  const Pack tail = fma(exponent, all(-2.12194440e-4f), q * z * s);
  return fma(exponent, all(0.693359375f), fma(s, all(2), tail));
}

}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#endif  // DSTRAIN_SIMD_MATH_INL_H
