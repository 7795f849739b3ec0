// adam: AdamW (decoupled decay) or Adam with L2 regularisation, and the 16-bit copy of the weight, in one pass.
//   g = grad * grad_scale (+ weight_decay * p where decay is not decoupled)
//   m += (1 - beta1) (g - m),  v += (1 - beta2) (g^2 - v)
// This form rounds 1 - beta to f32, not beta, whose rounding error would be large relative to 1 - beta.
//   p -= lr (m / correction1 / (sqrt(v / correction2) + eps) + weight_decay p)
// Does nothing if state->skip is set. Minimum memory traffic: 28 bytes per parameter (reads g, p, m, v; writes p,
// m, v), 30 with the 16-bit copy; a 16-bit gradient saves 2. Weights that are 16-bit masters, and 16-bit moments, are
// rounded to nearest when they are stored: 22 bytes with a 16-bit gradient, 14 with 16-bit moments too.
#include "kernels/cpu/memory_bound/kernels.h"
#include "kernels/cpu/memory_bound/optimizers/steps.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/memory_bound/optimizers/adam.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/memory_bound/optimizers/steps-inl.h"
#include "kernels/cpu/memory_bound/optimizers/update-inl.h"
#include "runtime/core/isa/best_variant.h"

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

// S: the type of the moments.
template <class S>
SIMD_FN void adam_of(const AdamStep& s, const UpdateOperands& o, S* all_m, S* all_v, int64_t begin,
                     int64_t end) {
  const AdamPacks packs(s);
  const auto rule = [=](int64_t i, auto n, Pack p, Pack grad) SIMD_INLINE {
    prefetch_changed(all_m + i);
    prefetch_changed(all_v + i);
    Pack m = load(all_m + i, n), v = load(all_v + i, n);
    const Pack next = packs.next(p, grad, m, v);
    store(m, all_m + i, n);
    store(v, all_v + i, n);
    return next;
  };
  if constexpr (std::is_same_v<S, float>)
    if (o.master) return update_range(o, begin, end, rule);
  update_own_masters(o, begin, end, rule);
}

void adam_range(const AdamStep& s, const UpdateOperands& o, DType moments, void* m, void* v,
                int64_t begin, int64_t end) {
  with_type(moments, [&](auto t) SIMD_INLINE {
    adam_of(s, o, static_cast<decltype(t)*>(m), static_cast<decltype(t)*>(v), begin, end);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain::simd {

std::unique_ptr<Kernel> make_adam(const KernelSpec& spec) {
  return update_kernel(spec, 3,
                       [attrs = attrs_as<AdamAttrs>(spec.attrs), moments = spec.out[1].dtype](
                           const KernelCall& call, const UpdateOperands& o) {
                         return [o, moments, step = AdamStep(*call.state, attrs),
                                 m = data(call.out, 1),
                                 v = data(call.out, 2)](int64_t begin, int64_t end) {
                           DSTRAIN_BEST(adam_range)(step, o, moments, m, v, begin, end);
                         };
                       });
}

}  // namespace dstrain::simd
#endif
