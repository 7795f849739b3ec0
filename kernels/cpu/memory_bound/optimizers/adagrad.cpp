// adagrad: torch.optim.Adagrad without decay of its learning rate, and the 16-bit copy of the weight:
//   g = grad * grad_scale + weight_decay p
//   sum += g^2
//   p -= lr g / (sqrt(sum) + eps)
// Does nothing if state->skip is set. Minimum memory traffic: 20 bytes per parameter (reads g, p, sum; writes p, sum),
// 22 with the 16-bit copy; a 16-bit gradient saves 2.
#include "kernels/cpu/memory_bound/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/memory_bound/optimizers/adagrad.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/memory_bound/optimizers/update-inl.h"
#include "runtime/core/isa/best_variant.h"

#ifndef DSTRAIN_SIMD_ADAGRAD_ONCE
#define DSTRAIN_SIMD_ADAGRAD_ONCE
namespace dstrain::simd {
namespace {
struct AdagradStep {
  float lr, grad_scale, eps, decay;
};
}  // namespace
}  // namespace dstrain::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

void adagrad_range(const AdagradStep& s, const UpdateOperands& o, float* sums, int64_t begin,
                   int64_t end) {
  const Pack grad_scale = all(s.grad_scale), decay = all(s.decay);
  const Pack minus_lr = all(-s.lr), eps = all(s.eps);
  update_range(o, begin, end, [=](int64_t i, auto n, Pack p, Pack grad) SIMD_INLINE {
    const Pack g = fma(decay, p, grad * grad_scale);
    const Pack sum = fma(g, g, load(sums + i, n));
    store(sum, sums + i, n);
    return fma(minus_lr, g / (square_root(sum) + eps), p);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain::simd {

std::unique_ptr<Kernel> make_adagrad(const KernelSpec& spec) {
  return update_kernel(spec, 2,
                       [attrs = attrs_as<AdagradAttrs>(spec.attrs)](const KernelCall& call,
                                                                    const UpdateOperands& o) {
                         const StepState& state = *call.state;
                         const AdagradStep step{state.lr * attrs.lr_scale, state.grad_scale,
                                                attrs.eps, attrs.weight_decay};
                         return [o, step, sums = data<float>(call.out, 1)](int64_t begin,
                                                                           int64_t end) {
                           DSTRAIN_BEST(adagrad_range)(step, o, sums, begin, end);
                         };
                       });
}

}  // namespace dstrain::simd
#endif
