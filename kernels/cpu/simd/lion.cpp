// lion: the sign of a blend of momentum and gradient (Chen et al., 2023), and the 16-bit copy of the weight:
//   g = grad * grad_scale,  c = beta1 m + (1 - beta1) g
//   p -= lr (sign(c) + weight_decay p)          (sign(0) = 0)
//   m = beta2 m + (1 - beta2) g
// Does nothing if state->skip is set. Minimum memory traffic: 20 bytes per parameter (reads g, p, m; writes p, m), 22
// with the 16-bit copy; a 16-bit gradient saves 2.
#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd/lion.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd/pack-inl.h"

#ifndef DSTRAIN_SIMD_LION_ONCE
#define DSTRAIN_SIMD_LION_ONCE
namespace dstrain::simd {
namespace {
struct LionStep {
  float lr, grad_scale, rest1, rest2, decay;
};
struct LionOperands {
  const void* grad;
  float *master, *m;
  void* param;  // may be null
};
}  // namespace
}  // namespace dstrain::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

template <class G, class T>
SIMD_FN void lion_range_of(const LionStep& s, const LionOperands& o, const G* grad, T* copy,
                           int64_t begin, int64_t end) {
  const Pack grad_scale = all(s.grad_scale), decay = all(s.decay), minus_lr = all(-s.lr);
  const Pack rest1 = all(s.rest1), rest2 = all(s.rest2);
  const Pack zero = all(0), one = all(1), minus_one = all(-1);
  for_packs(begin, end, [=](int64_t i, auto n) SIMD_INLINE {
    const Pack p = load(o.master + i, n), m = load(o.m + i, n);
    const Pack change = load(grad + i, n) * grad_scale - m;
    const Pack c = fma(rest1, change, m);
    const Pack sign = select(greater(c, zero), one, select_or_zero(less(c, zero), minus_one));
    const Pack next = fma(minus_lr, fma(decay, p, sign), p);
    store(fma(rest2, change, m), o.m + i, n);
    store(next, o.master + i, n);
    if (copy) store(next, copy + i, n);
  });
}

void lion_range(const LionStep& s, const LionOperands& o, DType grad, DType param, int64_t begin,
                int64_t end) {
  with_type(grad, [&](auto g) SIMD_INLINE {
    with_type(param, [&](auto t) SIMD_INLINE {
      lion_range_of(s, o, static_cast<const decltype(g)*>(o.grad),
                    static_cast<decltype(t)*>(o.param), begin, end);
    });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain::simd {
HWY_EXPORT(lion_range);

std::unique_ptr<Kernel> make_lion(const KernelSpec& spec) {
  return kernel_of(
      [threads = spec.threads, n = elements(spec.in[0]), attrs = attrs_as<LionAttrs>(spec.attrs),
       grad = spec.in[0].dtype,
       param = present(spec.out, 2) ? spec.out[2].dtype : DType::f32](const KernelCall& call) {
        const StepState& state = *call.state;
        if (state.skip) return;
        const LionStep step{state.lr, state.grad_scale, static_cast<float>(1.0 - state.beta1),
                            static_cast<float>(1.0 - state.beta2), attrs.weight_decay};
        const LionOperands o{data(call.in, 0), data<float>(call.out, 0), data<float>(call.out, 1),
                             data(call.out, 2)};
        parallel_ranges(threads, n, kFlatGrain, [&](int64_t begin, int64_t end) {
          HWY_DYNAMIC_DISPATCH(lion_range)(step, o, grad, param, begin, end);
        });
      });
}

}  // namespace dstrain::simd
#endif
