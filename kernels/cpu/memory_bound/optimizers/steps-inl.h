// The steps of Adam and Lion for a pack of elements. Included once per Highway target, hence the toggled include guard.
#if defined(DSTRAIN_SIMD_STEPS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DSTRAIN_SIMD_STEPS_INL_H
#undef DSTRAIN_SIMD_STEPS_INL_H
#else
#define DSTRAIN_SIMD_STEPS_INL_H
#endif

#include "kernels/cpu/memory_bound/optimizers/steps.h"
#include "kernels/cpu/memory_bound/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {

// A step of Adam or AdamW, its constants in all lanes.
struct AdamPacks {
  Pack grad_scale, l2, decay, rest1, rest2, minus_lr, eps, correct1, correct2;

  SIMD_FN explicit AdamPacks(const AdamStep& s)
      : grad_scale(all(s.grad_scale)),
        l2(all(s.l2)),
        decay(all(s.decay)),
        rest1(all(s.rest1)),
        rest2(all(s.rest2)),
        minus_lr(all(-s.lr)),
        eps(all(s.eps)),
        correct1(all(s.inverse_correction1)),
        correct2(all(s.inverse_correction2)) {}

  // Returns the weights after the step, and changes the moments.
  SIMD_FN Pack next(Pack p, Pack grad, Pack& m, Pack& v) const {
    const Pack g = fma(l2, p, grad * grad_scale);
    m = fma(rest1, g - m, m);
    v = fma(rest2, g * g - v, v);
    const Pack step = (m * correct1) / (square_root(v * correct2) + eps);
    return fma(minus_lr, fma(decay, p, step), p);
  }
};

// A step of Lion, its constants in all lanes.
struct LionPacks {
  Pack grad_scale, decay, minus_lr, rest1, rest2;

  SIMD_FN explicit LionPacks(const LionStep& s)
      : grad_scale(all(s.grad_scale)),
        decay(all(s.decay)),
        minus_lr(all(-s.lr)),
        rest1(all(s.rest1)),
        rest2(all(s.rest2)) {}

  SIMD_FN Pack next(Pack p, Pack grad, Pack& m) const {
    const Pack zero = all(0), change = grad * grad_scale - m;
    const Pack c = fma(rest1, change, m);
    const Pack sign = select(greater(c, zero), all(1), select_or_zero(less(c, zero), all(-1)));
    m = fma(rest2, change, m);
    return fma(minus_lr, fma(decay, p, sign), p);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#endif  // DSTRAIN_SIMD_STEPS_INL_H
