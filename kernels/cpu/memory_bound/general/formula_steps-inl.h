// The functions of a formula on tiles. Included once per Highway target, hence the toggled include guard.
#if defined(DSTRAIN_SIMD_FORMULA_STEPS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DSTRAIN_SIMD_FORMULA_STEPS_INL_H
#undef DSTRAIN_SIMD_FORMULA_STEPS_INL_H
#else
#define DSTRAIN_SIMD_FORMULA_STEPS_INL_H
#endif

#include "kernels/cpu/memory_bound/functions-inl.h"
#include "kernels/cpu/memory_bound/math-inl.h"
#include "kernels/cpu/memory_bound/pack-inl.h"
#include "runtime/ir/formula/formula.h"

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

// What a step reads and writes: tiles of whole packs.
struct StepTiles {
  const float *a, *b, *c;
  float* to;
  int64_t packs;
};

// Addresses are copied: the compiler cannot know that stores of vectors do not change them.
template <class F>
SIMD_FN void unary(const StepTiles& t, const F& f) {
  const float* const a = t.a;
  float* const to = t.to;
  const int64_t n = t.packs * kPack;
  for (int64_t i = 0; i < n; i += kPack) store(f(load(a + i)), to + i);
}
template <class F>
SIMD_FN void binary(const StepTiles& t, const F& f) {
  const float *const a = t.a, *const b = t.b;
  float* const to = t.to;
  const int64_t n = t.packs * kPack;
  for (int64_t i = 0; i < n; i += kPack) store(f(load(a + i), load(b + i)), to + i);
}
SIMD_FN void selection(const StepTiles& t) {
  const float *const a = t.a, *const b = t.b, *const c = t.c;
  float* const to = t.to;
  const int64_t n = t.packs * kPack;
  const Pack zero = all(0);
  for (int64_t i = 0; i < n; i += kPack) {
    const Pack condition = load(a + i), yes = load(b + i);
    // NaN is not 0, so it selects b.
    const Pack no_or_nan = select(is_nan(condition), yes, load(c + i));
    const Pack yes_if_less = select(less(condition, zero), yes, no_or_nan);
    store(select(greater(condition, zero), yes, yes_if_less), to + i);
  }
}

void run_step(Fn fn, const StepTiles& t) {
  switch (fn) {
    case Fn::add:
      return binary(t, [](Pack a, Pack b) SIMD_INLINE { return a + b; });
    case Fn::subtract:
      return binary(t, [](Pack a, Pack b) SIMD_INLINE { return a - b; });
    case Fn::multiply:
      return binary(t, [](Pack a, Pack b) SIMD_INLINE { return a * b; });
    case Fn::divide:
      return binary(t, [](Pack a, Pack b) SIMD_INLINE { return a / b; });
    case Fn::maximum:
      return binary(t, [](Pack a, Pack b) SIMD_INLINE { return any_maximum(a, b); });
    case Fn::minimum:
      return binary(t, [](Pack a, Pack b) SIMD_INLINE { return any_minimum(a, b); });
    case Fn::less:
      return binary(t,
                    [](Pack a, Pack b) SIMD_INLINE { return select_or_zero(less(a, b), all(1)); });
    case Fn::select:
      return selection(t);
    case Fn::negate:
      return unary(t, [](Pack a) SIMD_INLINE { return negated(a); });
    case Fn::absolute:
      return unary(t, [](Pack a) SIMD_INLINE { return absolute(a); });
    case Fn::exponential:
      return unary(t, [](Pack a) SIMD_INLINE { return exponential(a); });
    case Fn::logarithm:
      return unary(t, [](Pack a) SIMD_INLINE { return any_logarithm(a); });
    case Fn::square_root:
      return unary(t, [](Pack a) SIMD_INLINE { return square_root(a); });
    case Fn::tangent:
      return unary(t, [](Pack a) SIMD_INLINE { return any_tangent(a); });
    case Fn::sigmoid:
      return unary(t,
                   [](Pack a) SIMD_INLINE { return all(1) / (all(1) + exponential(all(0) - a)); });
    case Fn::sine:
      return unary(t, [](Pack a) SIMD_INLINE { return sine(a); });
    case Fn::cosine:
      return unary(t, [](Pack a) SIMD_INLINE { return cosine(a); });
    case Fn::error_function:
      return unary(t, [](Pack a) SIMD_INLINE { return error_function(a); });
    case Fn::rounded_down:
      return unary(t, [](Pack a) SIMD_INLINE { return rounded_down(a); });
    case Fn::rounded:
      return unary(t, [](Pack a) SIMD_INLINE { return nearest(a); });
    case Fn::power:
      return binary(t, [](Pack a, Pack b) SIMD_INLINE { return power(a, b); });
    case Fn::remainder:
      return binary(t, [](Pack a, Pack b) SIMD_INLINE { return remainder(a, b); });
    case Fn::input:
    case Fn::inside:
    case Fn::constant:
      return;
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#endif
