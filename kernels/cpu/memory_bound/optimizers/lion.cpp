// lion: the sign of a blend of momentum and gradient (Chen et al., 2023), and the 16-bit copy of the weight:
//   g = grad * grad_scale,  c = beta1 m + (1 - beta1) g
//   p -= lr (sign(c) + weight_decay p)          (sign(0) = 0)
//   m = beta2 m + (1 - beta2) g
// Does nothing if state->skip is set. Minimum memory traffic: 20 bytes per parameter (reads g, p, m; writes p, m), 22
// with the 16-bit copy; a 16-bit gradient saves 2.
#include "kernels/cpu/memory_bound/kernels.h"
#include "kernels/cpu/memory_bound/optimizers/steps.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/memory_bound/optimizers/lion.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/memory_bound/optimizers/steps-inl.h"
#include "kernels/cpu/memory_bound/optimizers/update-inl.h"
#include "runtime/core/isa/best_variant.h"

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

void lion_range(const LionStep& s, const UpdateOperands& o, float* all_m, int64_t begin,
                int64_t end) {
  const LionPacks packs(s);
  update_range(o, begin, end, [=](int64_t i, auto n, Pack p, Pack grad) SIMD_INLINE {
    Pack m = load(all_m + i, n);
    const Pack next = packs.next(p, grad, m);
    store(m, all_m + i, n);
    return next;
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
        const LionStep step(*call.state, attrs);
        return [o, step, m = data<float>(call.out, 1)](int64_t begin, int64_t end) {
          DSTRAIN_BEST(lion_range)(step, o, m, begin, end);
        };
      });
}

}  // namespace dstrain::simd
#endif
