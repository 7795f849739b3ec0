// A pack is 16 lanes of a type on every instruction set: one AVX-512 register, two AVX2 registers or 16 scalars.
// So a kernel is written once and sums in the same order on all of them. Included once per Highway target,
// hence the toggled include guard.
//
// Invariant: an operation on a lane is the same IEEE operation on AVX2 and AVX-512, in a partial pack as well.
// So an element has the same bits on both, wherever in a pack it is. The scalar target has no fused multiply-add
// and may differ in the last bit.
#if defined(DSTRAIN_SIMD_PACK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DSTRAIN_SIMD_PACK_INL_H
#undef DSTRAIN_SIMD_PACK_INL_H
#else
#define DSTRAIN_SIMD_PACK_INL_H
#endif

#include <cstring>

#include "hwy/highway.h"
#include "runtime/core/dtype.h"

// SIMD_FN marks functions, SIMD_INLINE lambdas of a kernel: they are always inlined. The scalar target and
// sanitized builds leave inlining to the compiler, because it would take minutes to compile.
#undef SIMD_FN
#undef SIMD_INLINE
#if HWY_TARGET == HWY_SCALAR || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SIMD_FN inline
#define SIMD_INLINE HWY_ATTR
#else
#define SIMD_FN inline __attribute__((always_inline))
#define SIMD_INLINE HWY_ATTR __attribute__((always_inline))
#endif
#undef SIMD_UNROLL
#if HWY_TARGET == HWY_SCALAR
#define SIMD_UNROLL _Pragma("GCC unroll 1")  // kParts is 16 here: unrolling only makes code larger
#else
#define SIMD_UNROLL _Pragma("GCC unroll 4")
#endif

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kPack = 16;
using DF = hn::CappedTag<float, kPack>;
using DI = hn::CappedTag<int32_t, kPack>;
using DU = hn::CappedTag<uint32_t, kPack>;
using DH = hn::Rebind<uint16_t, DF>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(DF()));
constexpr int kParts = kPack / kLanes;

// 16 lanes of one element type, in as many vectors of the instruction set as they need.
template <class D>
struct PackOf {
  hn::Vec<D> v[kParts];
};
using Pack = PackOf<DF>;
using IPack = PackOf<DI>;
using UPack = PackOf<DU>;
// One truth value for each lane of a pack: the result of a comparison, which selects lanes.
struct Mask {
  hn::Mask<DF> v[kParts];
};

// Tells load, store and keep that all 16 lanes of a pack hold elements.
struct Full {
  static constexpr int n = kPack;
};
// Tells load, store and keep that only the first n lanes of a pack hold elements (0 < n < 16).
struct First {
  int n;
};

// --- lanewise operations ---------------------------------------------------------------------

#define SIMD_UNARY(name, expression)   \
  SIMD_FN Pack name(Pack a) {          \
    Pack r;                            \
    SIMD_UNROLL                        \
    for (int i = 0; i < kParts; ++i) { \
      const auto x = a.v[i];           \
      r.v[i] = expression;             \
    }                                  \
    return r;                          \
  }
#define SIMD_BINARY(Result, name, expression) \
  SIMD_FN Result name(Pack a, Pack b) {       \
    Result r;                                 \
    SIMD_UNROLL                               \
    for (int i = 0; i < kParts; ++i) {        \
      const auto x = a.v[i], y = b.v[i];      \
      r.v[i] = expression;                    \
    }                                         \
    return r;                                 \
  }
#define SIMD_TERNARY(name, expression)               \
  SIMD_FN Pack name(Pack a, Pack b, Pack c) {        \
    Pack r;                                          \
    SIMD_UNROLL                                      \
    for (int i = 0; i < kParts; ++i) {               \
      const auto x = a.v[i], y = b.v[i], z = c.v[i]; \
      r.v[i] = expression;                           \
    }                                                \
    return r;                                        \
  }

SIMD_UNARY(square_root, hn::Sqrt(x))
SIMD_UNARY(absolute, hn::Abs(x))
SIMD_UNARY(nearest, hn::Round(x))
SIMD_BINARY(Pack, operator+, hn::Add(x, y))
SIMD_BINARY(Pack, operator-, hn::Sub(x, y))
SIMD_BINARY(Pack, operator*, hn::Mul(x, y))
SIMD_BINARY(Pack, operator/, hn::Div(x, y))
// These return the second operand if either is NaN.
#if HWY_TARGET == HWY_SCALAR
SIMD_BINARY(Pack, minimum, hn::IfThenElse(hn::Lt(x, y), x, y))
SIMD_BINARY(Pack, maximum, hn::IfThenElse(hn::Gt(x, y), x, y))
#else
SIMD_BINARY(Pack, minimum, hn::Min(x, y))
SIMD_BINARY(Pack, maximum, hn::Max(x, y))
#endif
SIMD_TERNARY(fma, hn::MulAdd(x, y, z))      // a * b + c
SIMD_TERNARY(fnma, hn::NegMulAdd(x, y, z))  // c - a * b
SIMD_BINARY(Mask, greater, hn::Gt(x, y))
SIMD_BINARY(Mask, less, hn::Lt(x, y))

#undef SIMD_UNARY
#undef SIMD_BINARY
#undef SIMD_TERNARY

SIMD_FN Pack all(float x) {
  Pack r;
  SIMD_UNROLL
  for (int i = 0; i < kParts; ++i) r.v[i] = hn::Set(DF(), x);
  return r;
}

SIMD_FN Pack select(Mask m, Pack yes, Pack no) {
  Pack r;
  SIMD_UNROLL
  for (int i = 0; i < kParts; ++i) r.v[i] = hn::IfThenElse(m.v[i], yes.v[i], no.v[i]);
  return r;
}

SIMD_FN Pack select_or_zero(Mask m, Pack yes) {
  Pack r;
  SIMD_UNROLL
  for (int i = 0; i < kParts; ++i) r.v[i] = hn::IfThenElseZero(m.v[i], yes.v[i]);
  return r;
}

SIMD_FN Pack keep(Full, Pack a) {
  return a;
}
// Sets the lanes without elements to zero.
SIMD_FN Pack keep(First lanes, Pack a) {
  Pack r;
  SIMD_UNROLL
  for (int i = 0; i < kParts; ++i) {
    const int n = HWY_MAX(0, HWY_MIN(kLanes, lanes.n - i * kLanes));
    r.v[i] = hn::IfThenElseZero(hn::FirstN(DF(), static_cast<size_t>(n)), a.v[i]);
  }
  return r;
}

// --- memory ----------------------------------------------------------------------------------

SIMD_FN Pack load(const float* p, Full = {}) {
  Pack r;
  SIMD_UNROLL
  for (int i = 0; i < kParts; ++i) r.v[i] = hn::LoadU(DF(), p + i * kLanes);
  return r;
}

SIMD_FN void store(Pack a, float* p, Full = {}) {
  SIMD_UNROLL
  for (int i = 0; i < kParts; ++i) hn::StoreU(a.v[i], DF(), p + i * kLanes);
}

// Conversion between 16 and 32 bits. narrow rounds to nearest, ties to even, and keeps NaN.
SIMD_FN hn::Vec<DF> widen(bf16, hn::Vec<DH> half) {
  return hn::BitCast(DF(), hn::ShiftLeft<16>(hn::PromoteTo(DU(), half)));
}

SIMD_FN hn::Vec<DH> narrow(bf16, hn::Vec<DF> x) {
  const auto bits = hn::BitCast(DU(), x);
  const auto high = hn::ShiftRight<16>(bits);
  const auto odd = hn::And(high, hn::Set(DU(), 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(DU(), 0x7fff)), odd));
  const auto number = hn::RebindMask(DU(), hn::Eq(x, x));
  const auto out = hn::IfThenElse(number, rounded, hn::Or(high, hn::Set(DU(), 0x40)));
#if HWY_TARGET == HWY_AVX3
  return hn::TruncateTo(DH(), out);
#else
  return hn::DemoteTo(DH(), hn::BitCast(DI(), out));
#endif
}

#if HWY_TARGET == HWY_SCALAR
SIMD_FN hn::Vec<DF> widen(f16, hn::Vec<DH> half) {
  return hn::Set(DF(), to_float(f16{hn::GetLane(half)}));
}
SIMD_FN hn::Vec<DH> narrow(f16, hn::Vec<DF> x) {
  return hn::Set(DH(), to_f16(hn::GetLane(x)).bits);
}
#else
using D16 = hn::Rebind<hwy::float16_t, DF>;
SIMD_FN hn::Vec<DF> widen(f16, hn::Vec<DH> half) {
  return hn::PromoteTo(DF(), hn::BitCast(D16(), half));
}
SIMD_FN hn::Vec<DH> narrow(f16, hn::Vec<DF> x) {
  return hn::BitCast(DH(), hn::DemoteTo(D16(), x));
}
#endif

template <class T>
SIMD_FN Pack load(const T* p, Full = {}) {
  Pack r;
  SIMD_UNROLL
  for (int i = 0; i < kParts; ++i)
    r.v[i] = widen(T{}, hn::LoadU(DH(), reinterpret_cast<const uint16_t*>(p) + i * kLanes));
  return r;
}

template <class T>
SIMD_FN void store(Pack a, T* p, Full = {}) {
  SIMD_UNROLL
  for (int i = 0; i < kParts; ++i)
    hn::StoreU(narrow(T{}, a.v[i]), DH(), reinterpret_cast<uint16_t*>(p) + i * kLanes);
}

// Loads the first lanes.n elements and reads nothing beyond them; the other lanes are zero.
template <class T>
SIMD_FN Pack load(const T* p, First lanes) {
#if HWY_TARGET == HWY_AVX3
  const auto some = hn::FirstN(DH(), static_cast<size_t>(lanes.n));
  return {{widen(T{}, hn::MaskedLoad(some, DH(), reinterpret_cast<const uint16_t*>(p)))}};
#else
  alignas(64) T buffer[kPack] = {};
  for (int i = 0; i < lanes.n; ++i) buffer[i] = p[i];
  return load(buffer);
#endif
}

template <class T>
SIMD_FN void store(Pack a, T* p, First lanes) {
#if HWY_TARGET == HWY_AVX3
  const auto some = hn::FirstN(DH(), static_cast<size_t>(lanes.n));
  hn::BlendedStore(narrow(T{}, a.v[0]), some, DH(), reinterpret_cast<uint16_t*>(p));
#else
  alignas(64) T buffer[kPack];
  store(a, buffer);
  for (int i = 0; i < lanes.n; ++i) p[i] = buffer[i];
#endif
}

#if HWY_TARGET != HWY_SCALAR
template <>
SIMD_FN Pack load(const float* p, First lanes) {
  Pack r;
  SIMD_UNROLL
  for (int i = 0; i < kParts; ++i) {
    const int n = HWY_MAX(0, HWY_MIN(kLanes, lanes.n - i * kLanes));
    r.v[i] = hn::MaskedLoad(hn::FirstN(DF(), static_cast<size_t>(n)), DF(), p + i * kLanes);
  }
  return r;
}

template <>
SIMD_FN void store(Pack a, float* p, First lanes) {
  SIMD_UNROLL
  for (int i = 0; i < kParts; ++i) {
    const int n = HWY_MAX(0, HWY_MIN(kLanes, lanes.n - i * kLanes));
    hn::BlendedStore(a.v[i], hn::FirstN(DF(), static_cast<size_t>(n)), DF(), p + i * kLanes);
  }
}
#endif

// --- loops and sums --------------------------------------------------------------------------

// Calls f(i, lanes) for each pack of [begin, end): with Full{}, and for a partial last pack with First{n}.
template <class F>
SIMD_FN void for_packs(int64_t begin, int64_t end, const F& f) {
  int64_t i = begin;
  for (; i + kPack <= end; i += kPack) f(i, Full{});
  if (i < end) f(i, First{static_cast<int>(end - i)});
}

// Returns the sum of the lanes, added as a tree: lane i + 8 to lane i, then i + 4 to i, and so on.
SIMD_FN float sum(Pack a) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
#if HWY_TARGET == HWY_AVX3
  const auto eight = hn::Add(hn::LowerHalf(hn::Full256<float>(), a.v[0]),
                             hn::UpperHalf(hn::Full256<float>(), a.v[0]));
#else
  const auto eight = hn::Add(a.v[0], a.v[1]);
#endif
  const hn::Full128<float> d;
  const auto four = hn::Add(hn::LowerHalf(d, eight), hn::UpperHalf(d, eight));
  const auto two = hn::Add(four, hn::Shuffle1032(four));
  return hn::GetLane(hn::Add(two, hn::Shuffle2301(two)));
#else
  alignas(64) float x[kPack];
  store(a, x);
  for (int half = kPack / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) x[i] = x[i] + x[i + half];
  return x[0];
#endif
}

SIMD_FN float largest(Pack a) {
  alignas(64) float x[kPack];
  store(a, x);
  for (int half = kPack / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) x[i] = x[i] > x[i + half] ? x[i] : x[i + half];
  return x[0];
}

// Returns the lanewise sum of f(i, lanes) over the packs of [0, n), in four interleaved chains. Of a partial
// pack, only the lanes with elements count.
template <class F>
SIMD_FN Pack sum_packs(int64_t n, const F& f) {
  Pack s[4] = {all(0), all(0), all(0), all(0)};
  int64_t i = 0;
  for (; i + 4 * kPack <= n; i += 4 * kPack) {
    SIMD_UNROLL
    for (int k = 0; k < 4; ++k) s[k] = s[k] + f(i + k * kPack, Full{});
  }
  for_packs(i, n,
            [&](int64_t j, auto lanes) SIMD_INLINE { s[0] = s[0] + keep(lanes, f(j, lanes)); });
  return (s[0] + s[1]) + (s[2] + s[3]);
}

// Adds the packs at from, from + stride, from + 2 stride, ... (`count` of them) in order, and writes the sum to
// `to` or, with `accumulate`, adds it.
template <class T, class Lanes>
SIMD_FN void sum_strided(const T* from, int64_t count, int64_t stride, bool accumulate, float* to,
                         Lanes n) {
  Pack total = all(0);
  for (int64_t k = 0; k < count; ++k) total = total + load(from + k * stride, n);
  store(accumulate ? load(to, n) + total : total, to, n);
}

// Calls f(T{}) with the element type T of `dtype`.
template <class F>
SIMD_FN void with_type(DType dtype, const F& f) {
  if (dtype == DType::bf16)
    f(bf16{});
  else if (dtype == DType::f16)
    f(f16{});
  else
    f(float{});
}

}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#endif  // DSTRAIN_SIMD_PACK_INL_H
