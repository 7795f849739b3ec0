// The local steps of 0/1 Adam (Lu et al., 2022), whose second moment is frozen. Weights stay as they were synchronised;
// a rank adds up lr * m of its steps since then, and computes with the weights that these lead to. Where v is 0 there
// has never been a gradient: nothing moves, and m and the sum are 0.
// local_step: m += (1 - beta1) (ranks * grad * grad_scale - m),  sum += lr m.
//   Minimum memory traffic: 24 bytes per parameter; a 16-bit gradient saves 2.
// local_weights: param = p - lrs weight_decay p - sum / (sqrt(v) + eps), lrs being the sum of the learning rates of the
//   steps in `sum`, not written to p. Minimum memory traffic: 16 bytes per parameter, 14 with 16-bit parameters.
// end_local_steps: the same with the mean of all ranks' sums and with this step's rate in lrs, written to p, and
//   m = sum / lrs, the mean momentum (m stays if lrs is 0),  sum = 0.
//   Minimum memory traffic: 24 bytes per parameter, 26 with a 16-bit copy, 28 with an f32 copy.
// local_step and end_local_steps do nothing if state->skip is set.
#include "kernels/cpu/simd/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd/optimizers/local_steps.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd/optimizers/update-inl.h"
#include "runtime/core/isa/best_variant.h"

#ifndef DSTRAIN_SIMD_LOCAL_STEPS_ONCE
#define DSTRAIN_SIMD_LOCAL_STEPS_ONCE
namespace dstrain::simd {
namespace {
struct LocalStep {
  float grad_scale, rest1, lr;  // grad_scale has the number of ranks in it
};
struct LocalMove {
  float eps, decay;  // lrs * weight_decay
};
}  // namespace
}  // namespace dstrain::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

void local_step_range(const LocalStep& s, DType dtype, const void* all_grad, const float* v,
                      float* m, float* sum, int64_t begin, int64_t end) {
  const Pack scale = all(s.grad_scale), rest1 = all(s.rest1), lr = all(s.lr);
  with_type(dtype, [&](auto t) SIMD_INLINE {
    const auto* grad = static_cast<const decltype(t)*>(all_grad);
    for_packs(begin, end, [=](int64_t i, auto n) SIMD_INLINE {
      const Pack old = load(m + i, n), g = load(grad + i, n) * scale;
      const Pack next = select_or_zero(greater(load(v + i, n), all(0)), fma(rest1, g - old, old));
      store(next, m + i, n);
      store(fma(lr, next, load(sum + i, n)), sum + i, n);
    });
  });
}

// Returns what local steps make of weights.
SIMD_FN Pack moved_weights(Pack p, Pack v, Pack sum, Pack eps, Pack minus_decay) {
  const Pack step = select_or_zero(greater(v, all(0)), sum / (square_root(v) + eps));
  return fma(minus_decay, p, p - step);
}

void local_weights_range(const LocalMove& s, const float* master, const float* v, const float* sum,
                         DType dtype, void* all_params, int64_t begin, int64_t end) {
  const Pack eps = all(s.eps), minus_decay = all(-s.decay);
  with_type(dtype, [&](auto t) SIMD_INLINE {
    auto* params = static_cast<decltype(t)*>(all_params);
    for_packs(begin, end, [=](int64_t i, auto n) SIMD_INLINE {
      store(moved_weights(load(master + i, n), load(v + i, n), load(sum + i, n), eps, minus_decay),
            params + i, n);
    });
  });
}

// `o.grad`: the sum.
void end_local_steps_range(const LocalMove& s, float lrs, const UpdateOperands& o, const float* v,
                           float* m, float* sum, int64_t begin, int64_t end) {
  const Pack eps = all(s.eps), minus_decay = all(-s.decay), rates = all(lrs);
  update_range_f32(o, begin, end, [=](int64_t i, auto n, Pack p, Pack total) SIMD_INLINE {
    const Pack second = load(v + i, n);
    if (lrs != 0) store(select_or_zero(greater(second, all(0)), total / rates), m + i, n);
    store(all(0), sum + i, n);
    return moved_weights(p, second, total, eps, minus_decay);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain::simd {

std::unique_ptr<Kernel> make_local_step(const KernelSpec& spec) {
  return kernel_of([threads = spec.threads, n = elements(spec.in[0]), dtype = spec.in[0].dtype,
                    attrs = attrs_as<LocalMomentumAttrs>(spec.attrs)](const KernelCall& call) {
    const StepState& s = *call.state;
    if (s.skip) return;
    const float scale = attrs.scaled ? s.grad_scale : 1.0f;
    const LocalStep step{scale * static_cast<float>(attrs.ranks), static_cast<float>(1.0 - s.beta1),
                         s.lr};
    parallel_ranges(threads, n, kFlatGrain, [&](int64_t begin, int64_t end) {
      DSTRAIN_BEST(local_step_range)
      (step, dtype, data(call.in, 0), data<const float>(call.in, 1), data<float>(call.out, 0),
       data<float>(call.out, 1), begin, end);
    });
  });
}

std::unique_ptr<Kernel> make_local_weights(const KernelSpec& spec) {
  return kernel_of([threads = spec.threads, n = elements(spec.in[0]), dtype = spec.out[0].dtype,
                    attrs = attrs_as<FrozenAdamAttrs>(spec.attrs)](const KernelCall& call) {
    const LocalMove move{attrs.eps, static_cast<float>(call.state->local_lr) * attrs.weight_decay};
    parallel_ranges(threads, n, kFlatGrain, [&](int64_t begin, int64_t end) {
      DSTRAIN_BEST(local_weights_range)
      (move, data<const float>(call.in, 0), data<const float>(call.in, 1),
       data<const float>(call.in, 2), dtype, data(call.out, 0), begin, end);
    });
  });
}

std::unique_ptr<Kernel> make_end_local_steps(const KernelSpec& spec) {
  return kernel_of([threads = spec.threads, n = elements(spec.in[0]),
                    attrs = attrs_as<FrozenAdamAttrs>(spec.attrs),
                    copy_type = present(spec.out, 3) ? spec.out[3].dtype
                                                     : DType::f32](const KernelCall& call) {
    const StepState& s = *call.state;
    const auto lrs = static_cast<float>(s.local_lr + static_cast<double>(s.lr));
    if (s.skip) return;
    auto* sum = data<float>(call.out, 2);
    const UpdateOperands o{sum, DType::f32, data<float>(call.out, 0), data(call.out, 3), copy_type};
    const LocalMove move{attrs.eps, lrs * attrs.weight_decay};
    parallel_ranges(threads, n, kFlatGrain, [&](int64_t begin, int64_t end) {
      DSTRAIN_BEST(end_local_steps_range)
      (move, lrs, o, data<const float>(call.in, 0), data<float>(call.out, 1), sum, begin, end);
    });
  });
}

}  // namespace dstrain::simd
#endif
