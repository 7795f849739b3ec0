// Vector helpers of portable attention: 2^t, tanh, and rows widened to fp32 and rounded from it. Included once per
// Highway target.
// Invariant: rounding gives the bits of runtime/core/dtype.h at every position of a row.
#if defined(DSTRAIN_ATTENTION_VECTOR_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DSTRAIN_ATTENTION_VECTOR_MATH_INL_H_
#undef DSTRAIN_ATTENTION_VECTOR_MATH_INL_H_
#else
#define DSTRAIN_ATTENTION_VECTOR_MATH_INL_H_
#endif

#include <hwy/highway.h>

#include "runtime/core/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace dstrain::attention::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using I32 = hn::RebindToSigned<F32>;
using U32 = hn::RebindToUnsigned<F32>;
using V32 = hn::Vec<F32>;

inline constexpr float kLog2e = 1.44269504088896341f;

// Returns 2^t for t <= 127 with a relative error below 1e-7 beside the rounding of t; 0 below 2^-126, NaN for
// NaN. t is split into an integer n (the low mantissa bits of t + 1.5*2^23) and f in [-1/2, 1/2]. The polynomial
// is the minimax fit of 2^f, with a relative error of 1.9e-9 before rounding.
HWY_INLINE V32 exp2_of(V32 t) {
  const F32 d;
  const I32 di;
  const auto magic = hn::Set(d, 12582912.0f);
  const auto z = hn::Add(t, magic);
  const auto f = hn::Sub(t, hn::Sub(z, magic));
  auto p = hn::Set(d, 0.00015345810970757157f);
  p = hn::MulAdd(p, f, hn::Set(d, 0.0013399930903688073f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.009618489071726799f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.05550328642129898f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.24022646248340607f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.6931471824645996f));
  p = hn::MulAdd(p, f, hn::Set(d, 1.0f));
  const auto scaled = hn::Add(hn::BitCast(di, p), hn::ShiftLeft<23>(hn::BitCast(di, z)));
  return hn::IfThenZeroElse(hn::Lt(t, hn::Set(d, -126.0f)), hn::BitCast(d, scaled));
}

// Returns tanh x with a relative error below 1e-6: x + x^3 q(x^2) where |x| is small, else (1 - e) / (1 + e) with
// e = exp(-2 |x|).
HWY_INLINE V32 tanh_of(V32 x) {
  const F32 d;
  const auto size = hn::Abs(x), z = hn::Mul(x, x), one = hn::Set(d, 1.0f);
  // Taylor's series, whose next term is 2e-9 of tanh at 0.3.
  auto q = hn::Set(d, -8.8632355299022e-3f);
  q = hn::MulAdd(q, z, hn::Set(d, 2.1869488536155e-2f));
  q = hn::MulAdd(q, z, hn::Set(d, -5.3968253968254e-2f));
  q = hn::MulAdd(q, z, hn::Set(d, 1.3333333333333e-1f));
  q = hn::MulAdd(q, z, hn::Set(d, -3.3333333333333e-1f));
  const auto e = exp2_of(hn::Mul(size, hn::Set(d, -2 * kLog2e)));
  const auto large = hn::Div(hn::Sub(one, e), hn::Add(one, e));
  const auto small = hn::MulAdd(hn::Mul(size, z), q, size);
  return hn::CopySign(hn::IfThenElse(hn::Lt(size, hn::Set(d, 0.3f)), small, large), x);
}

HWY_INLINE V32 widen(const float* p) {
  return hn::LoadU(F32(), p);
}
HWY_INLINE V32 widen(const bf16* p) {
  const hn::Rebind<uint16_t, F32> d16;
  const auto bits = hn::PromoteTo(U32(), hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p)));
  return hn::BitCast(F32(), hn::ShiftLeft<16>(bits));
}
HWY_INLINE V32 widen(const f16* p) {
  const U32 du;
  const F32 d;
  const hn::Rebind<uint16_t, F32> d16;
  const auto h = hn::PromoteTo(du, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p)));
  const auto sign = hn::ShiftLeft<16>(hn::And(h, hn::Set(du, 0x8000u)));
  const auto magnitude = hn::And(h, hn::Set(du, 0x7fffu));
  // The exponents' biases differ by 112; the multiplication also converts subnormals correctly.
  const auto scaled =
      hn::BitCast(du, hn::Mul(hn::BitCast(d, hn::ShiftLeft<13>(magnitude)), hn::Set(d, 0x1p112f)));
  const auto special = hn::Or(hn::ShiftLeft<13>(magnitude), hn::Set(du, 0x7f800000u));
  const auto is_special = hn::Gt(magnitude, hn::Set(du, 0x7bffu));
  return hn::BitCast(d, hn::Or(sign, hn::IfThenElse(is_special, special, scaled)));
}

HWY_INLINE void store_bits16(hn::Vec<U32> bits, void* p) {
  const hn::Rebind<uint16_t, F32> d16;
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(I32(), bits)), d16, static_cast<uint16_t*>(p));
}

HWY_INLINE void narrow(V32 x, float* p) {
  hn::StoreU(x, F32(), p);
}
HWY_INLINE void narrow(V32 x, bf16* p) {
  const U32 du;
  const auto u = hn::BitCast(du, x);
  const auto odd = hn::And(hn::ShiftRight<16>(u), hn::Set(du, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(u, hn::Add(odd, hn::Set(du, 0x7fffu))));
  const auto nan = hn::Or(hn::ShiftRight<16>(u), hn::Set(du, 0x40u));
  const auto magnitude = hn::And(u, hn::Set(du, 0x7fffffffu));
  store_bits16(hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x7f800000u)), nan, rounded), p);
}
HWY_INLINE void narrow(V32 x, f16* p) {
  const U32 du;
  const F32 d;
  const auto u = hn::BitCast(du, x);
  const auto sign = hn::And(hn::ShiftRight<16>(u), hn::Set(du, 0x8000u));
  const auto a = hn::And(u, hn::Set(du, 0x7fffffffu));
  const auto odd = hn::And(hn::ShiftRight<13>(a), hn::Set(du, 1u));
  const auto normal = hn::ShiftRight<13>(
      hn::Add(hn::Sub(a, hn::Set(du, 0x38000000u)), hn::Add(odd, hn::Set(du, 0xfffu))));
  const auto shifted = hn::Add(hn::BitCast(d, a), hn::Set(d, 0.5f));
  const auto small = hn::Sub(hn::BitCast(du, shifted), hn::Set(du, 0x3f000000u));
  auto r = hn::IfThenElse(hn::Lt(a, hn::Set(du, 0x38800000u)), small, normal);
  r = hn::IfThenElse(hn::Gt(a, hn::Set(du, 0x477fefffu)), hn::Set(du, 0x7c00u), r);
  r = hn::IfThenElse(hn::Gt(a, hn::Set(du, 0x7f800000u)), hn::Set(du, 0x7e00u), r);
  store_bits16(hn::Or(sign, r), p);
}

// Widens n elements into dst and fills dst with zeros up to `padded`.
template <class T>
void widen_row(const T* src, int64_t n, float* dst, int64_t padded) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(widen(src + i), d, dst + i);
  for (; i < n; ++i) dst[i] = to_float(src[i]);
  for (; i < padded; ++i) dst[i] = 0;
}
inline void widen_row(const void* src, int64_t n, DType dtype, float* dst, int64_t padded) {
  if (dtype == DType::f32) return widen_row(static_cast<const float*>(src), n, dst, padded);
  if (dtype == DType::bf16) return widen_row(static_cast<const bf16*>(src), n, dst, padded);
  widen_row(static_cast<const f16*>(src), n, dst, padded);
}

// Stores src[i] * factor for n elements, rounded once.
template <class T>
void narrow_row(const float* src, int64_t n, float factor, T* dst) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto f = hn::Set(d, factor);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) narrow(hn::Mul(hn::LoadU(d, src + i), f), dst + i);
  for (; i < n; ++i) dst[i] = from_float<T>(src[i] * factor);
}
inline void narrow_row(const float* src, int64_t n, float factor, DType dtype, void* dst) {
  if (dtype == DType::f32) return narrow_row(src, n, factor, static_cast<float*>(dst));
  if (dtype == DType::bf16) return narrow_row(src, n, factor, static_cast<bf16*>(dst));
  narrow_row(src, n, factor, static_cast<f16*>(dst));
}

}  // namespace dstrain::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
