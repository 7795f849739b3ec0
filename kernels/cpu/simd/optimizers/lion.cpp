// lion: the sign of a blend of momentum and gradient (Chen et al., 2023), and the 16-bit copy of the weight:
//   g = grad * grad_scale,  c = beta1 m + (1 - beta1) g
//   p -= lr (sign(c) + weight_decay p)          (sign(0) = 0)
//   m = beta2 m + (1 - beta2) g
// Does nothing if state->skip is set. Minimum memory traffic: 20 bytes per parameter (reads g, p, m; writes p, m), 22
// with the 16-bit copy; a 16-bit gradient saves 2.
#include "kernels/cpu/simd/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd/optimizers/lion.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd/optimizers/update-inl.h"
#include "runtime/core/isa/best_variant.h"

#ifndef DSTRAIN_SIMD_LION_ONCE
#define DSTRAIN_SIMD_LION_ONCE
namespace dstrain::simd {
namespace {
struct LionStep {
  float lr, grad_scale, rest1, rest2, decay;
};
}  // namespace
}  // namespace dstrain::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

void lion_range(const LionStep& s, const UpdateOperands& o, float* all_m, int64_t begin,
                int64_t end) {
  const Pack grad_scale = all(s.grad_scale), decay = all(s.decay), minus_lr = all(-s.lr);
  const Pack rest1 = all(s.rest1), rest2 = all(s.rest2);
  const Pack zero = all(0), one = all(1), minus_one = all(-1);
  update_range(o, begin, end, [=](int64_t i, auto n, Pack p, Pack grad) SIMD_INLINE {
    const Pack m = load(all_m + i, n);
    const Pack change = grad * grad_scale - m;
    const Pack c = fma(rest1, change, m);
    const Pack sign = select(greater(c, zero), one, select_or_zero(less(c, zero), minus_one));
    store(fma(rest2, change, m), all_m + i, n);
    return fma(minus_lr, fma(decay, p, sign), p);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain::simd {

std::unique_ptr<Kernel> make_lion(const KernelSpec& spec) {
  return update_kernel(
      spec, 2,
      [attrs = attrs_as<LionAttrs>(spec.attrs)](const KernelCall& call, const UpdateOperands& o) {
        const StepState& state = *call.state;
        const LionStep step{state.lr * attrs.lr_scale, state.grad_scale,
                            static_cast<float>(1.0 - state.beta1),
                            static_cast<float>(1.0 - state.beta2), attrs.weight_decay};
        return [o, step, m = data<float>(call.out, 1)](int64_t begin, int64_t end) {
          DSTRAIN_BEST(lion_range)(step, o, m, begin, end);
        };
      });
}

}  // namespace dstrain::simd
#endif
