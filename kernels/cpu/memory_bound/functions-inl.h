// Functions of any number on packs: NaN, infinity and zeros go through them as through those of C. Highway's have errors of
// a few units in the last place.
#if defined(DSTRAIN_SIMD_FUNCTIONS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DSTRAIN_SIMD_FUNCTIONS_INL_H
#undef DSTRAIN_SIMD_FUNCTIONS_INL_H
#else
#define DSTRAIN_SIMD_FUNCTIONS_INL_H
#endif

#include <cmath>

#include "hwy/contrib/math/math-inl.h"
#include "kernels/cpu/memory_bound/math-inl.h"
#include "kernels/cpu/memory_bound/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {

SIMD_FN Mask is_nan(Pack a) {
  Mask r;
  SIMD_UNROLL
  for (int i = 0; i < kParts; ++i) r.v[i] = hn::IsNaN(a.v[i]);
  return r;
}

// Calls a function of vectors for each one of a pack.
template <class F>
SIMD_FN Pack each(Pack a, const F& f) {
  Pack r;
  SIMD_UNROLL
  for (int i = 0; i < kParts; ++i) r.v[i] = f(a.v[i]);
  return r;
}

// ln x, also of 0, of negative numbers, infinity and NaN.
SIMD_FN Pack any_logarithm(Pack x) {
  const Pack inside = each(x, [](auto v) SIMD_INLINE { return hn::Log(DF(), v); });
  const Pack largest = all(3.4028235e38f), smallest = all(0);
  Pack y = select(greater(x, largest), x, inside);
  y = select(greater(x, smallest), y, select(less(x, smallest), all(NAN), all(-HUGE_VALF)));
  return select(is_nan(x), x, y);
}

// tanh x: Highway's overflows where x is large.
SIMD_FN Pack any_tangent(Pack x) {
  const Pack near = maximum(all(-20), minimum(all(20), x));
  const Pack y = each(near, [](auto v) SIMD_INLINE { return hn::Tanh(DF(), v); });
  return select(is_nan(x), x, y);
}

SIMD_FN Pack any_maximum(Pack a, Pack b) {
  return select(is_nan(a), a, maximum(a, b));
}
SIMD_FN Pack any_minimum(Pack a, Pack b) {
  return select(is_nan(a), a, minimum(a, b));
}

SIMD_FN Pack negated(Pack a) {
  return each(a, [](auto v) SIMD_INLINE { return hn::Neg(v); });
}
// Returns y with f(a) in the lanes where |a| is so large that Highway's functions of angles are not defined, or no number.
inline Pack with_far_angles(Pack a, Pack y, double (*f)(double)) {
  const Mask near = less(absolute(a), all(39000));
  bool all_near = true;
  for (int i = 0; i < kParts; ++i) all_near = all_near && hn::AllTrue(DF(), near.v[i]);
  if (all_near) return y;
  alignas(64) float angles[kPack], values[kPack];
  store(a, angles);
  store(y, values);
  for (int i = 0; i < kPack; ++i)
    if (!(std::abs(angles[i]) < 39000))
      values[i] = static_cast<float>(f(static_cast<double>(angles[i])));
  return load(values);
}
SIMD_FN Pack sine(Pack a) {
  const Pack y = each(a, [](auto v) SIMD_INLINE { return hn::Sin(DF(), v); });
  return with_far_angles(a, y, [](double x) { return std::sin(x); });
}
SIMD_FN Pack cosine(Pack a) {
  const Pack y = each(a, [](auto v) SIMD_INLINE { return hn::Cos(DF(), v); });
  return with_far_angles(a, y, [](double x) { return std::cos(x); });
}

SIMD_FN Pack rounded_down(Pack a) {
  return each(a, [](auto v) SIMD_INLINE { return hn::Floor(v); });
}

// Half of erfc(a) for a >= 0, by exp(-a^2) and t = 1 / (1 + 0.3 a): exp(-a^2) t Q(t), where Q is half the minimax fit of
// exp(a^2) erfc(a) / t in relative error, 2e-8 for a up to 10.
SIMD_FN Pack half_erfc(Pack power, Pack t) {
  Pack q = all(-0.06476138138108f);
  q = fma(q, t, all(0.24278128353997f));
  q = fma(q, t, all(-0.25613839330906f));
  q = fma(q, t, all(0.27385928408421f));
  q = fma(q, t, all(-0.04732486974423f));
  q = fma(q, t, all(0.10746283562461f));
  q = fma(q, t, all(0.07416963587409f));
  q = fma(q, t, all(0.08535760660989f));
  q = fma(q, t, all(0.08459400299675f));
  return power * t * q;
}

// erf x: 1 - erfc |x| with the sign of x, and near 0 its series, of which the first term left out is 2e-8 of erf x.
SIMD_FN Pack error_function(Pack x) {
  const Pack a = absolute(x), square = a * a;
  const Pack tail = half_erfc(exponential(negated(square)), all(1) / fma(a, all(0.3f), all(1)));
  const Pack far = all(1) - (tail + tail);
  Pack s = all(-1.4925650e-5f);
  s = fma(s, square, all(1.2055332e-4f));
  s = fma(s, square, all(-8.5483270e-4f));
  s = fma(s, square, all(5.2239776e-3f));
  s = fma(s, square, all(-2.6866170e-2f));
  s = fma(s, square, all(1.1283792e-1f));
  s = fma(s, square, all(-3.7612638e-1f));
  s = fma(s, square, all(1.1283792f));
  const Pack y = select(less(a, all(0.75f)), x * s, select(less(x, all(0)), negated(far), far));
  return select(is_nan(x), x, y);
}

// Returns f of each two elements.
template <class F>
inline Pack one_by_one(Pack a, Pack b, const F& f) {
  alignas(64) float first[kPack], second[kPack];
  store(a, first);
  store(b, second);
  for (int i = 0; i < kPack; ++i) first[i] = f(first[i], second[i]);
  return load(first);
}
inline Pack power(Pack a, Pack b) {
  return one_by_one(a, b, [](float x, float y) { return std::pow(x, y); });
}
inline Pack remainder(Pack a, Pack b) {
  return one_by_one(a, b, [](float x, float y) { return std::fmod(x, y); });
}

}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#endif
