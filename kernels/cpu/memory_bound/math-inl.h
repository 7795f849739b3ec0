// exp, ln and tanh on packs, with relative errors below 1e-6. The first two reduce the argument and use the Taylor series on the
// reduced range, cut off below f32's precision.
#if defined(DSTRAIN_SIMD_MATH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DSTRAIN_SIMD_MATH_INL_H
#undef DSTRAIN_SIMD_MATH_INL_H
#else
#define DSTRAIN_SIMD_MATH_INL_H
#endif

#include "kernels/cpu/memory_bound/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {

// y * 2^n for integral n in [-160, 160] and y near 1, rounded once where the result is subnormal.
SIMD_FN Pack scale_by_power(Pack y, Pack n, IPack whole) {
  Pack r;
  SIMD_UNROLL
  for (int i = 0; i < kParts; ++i) {
#if HWY_TARGET == HWY_AVX3
    static_cast<void>(whole);
    r.v[i] = hn::Vec<DF>{_mm512_scalef_ps(y.v[i].raw, n.v[i].raw)};
#else
    static_cast<void>(n);
    // 2^n as two factors, so that both are normal numbers.
    const auto half = hn::ShiftRight<1>(whole.v[i]), rest = hn::Sub(whole.v[i], half);
    const auto bias = hn::Set(DI(), 127);
    const auto a = hn::BitCast(DF(), hn::ShiftLeft<23>(hn::Add(half, bias)));
    const auto b = hn::BitCast(DF(), hn::ShiftLeft<23>(hn::Add(rest, bias)));
    r.v[i] = hn::Mul(hn::Mul(y.v[i], a), b);
#endif
  }
  return r;
}

// e^x: subnormal or 0 for very negative x, infinity above 88.7, NaN for NaN.
SIMD_FN Pack exponential(Pack x) {
  x = maximum(all(-110.0f), minimum(all(100.0f), x));
  // Adding 1.5 * 2^23 rounds to the nearest integer, which is then in the low bits.
  const Pack shifter = all(12582912.0f);
  const Pack shifted = fma(x, all(1.44269504088896341f), shifter);
  const Pack n = shifted - shifter;
  IPack whole;
  SIMD_UNROLL
  for (int i = 0; i < kParts; ++i)
    whole.v[i] = hn::Sub(hn::BitCast(DI(), shifted.v[i]), hn::Set(DI(), 0x4b400000));
  // ln 2 is split into two parts; n times the first one is exact.
  const Pack r = fnma(n, all(-2.12194440e-4f), fnma(n, all(0.693359375f), x));
  // e^r on |r| <= ln(2) / 2: 1 + r + r^2 q(r)
  Pack q = all(1.9841269841e-4f);
  q = fma(q, r, all(1.3888888889e-3f));
  q = fma(q, r, all(8.3333333333e-3f));
  q = fma(q, r, all(4.1666666667e-2f));
  q = fma(q, r, all(1.6666666667e-1f));
  q = fma(q, r, all(0.5f));
  return scale_by_power(fma(q, r * r, r) + all(1.0f), n, whole);
}

// tanh x = x + x^3 q(x^2) where |x| is small, else (1 - e) / (1 + e) with e = exp(-2 |x|).
SIMD_FN Pack hyperbolic_tangent(Pack x) {
  const Pack size = absolute(x), z = x * x;
  // Taylor's series, whose next term is 2e-9 of tanh at 0.3.
  Pack q = all(-8.8632355299022e-3f);
  q = fma(q, z, all(2.1869488536155e-2f));
  q = fma(q, z, all(-5.3968253968254e-2f));
  q = fma(q, z, all(1.3333333333333e-1f));
  q = fma(q, z, all(-3.3333333333333e-1f));
  const Pack e = exponential(all(-2) * size), large = (all(1) - e) / (all(1) + e);
  const Pack value = select(less(size, all(0.3f)), fma(size * z, q, size), large);
  return select(less(x, all(0)), all(0) - value, value);
}

// ln x for a positive normal number x.
SIMD_FN Pack logarithm(Pack x) {
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
