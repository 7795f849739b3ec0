// adam: AdamW (decoupled decay) or Adam with L2 regularisation, and the 16-bit copy of the weight, in one pass.
//   g = grad * grad_scale (+ weight_decay * p where decay is not decoupled)
//   m += (1 - beta1) (g - m),  v += (1 - beta2) (g^2 - v)
// This form rounds 1 - beta to f32, not beta, whose rounding error would be large relative to 1 - beta.
//   p -= lr (m / correction1 / (sqrt(v / correction2) + eps) + weight_decay p)
// Does nothing if state->skip is set. Minimum memory traffic: 28 bytes per parameter (reads g, p, m, v; writes p,
// m, v), 30 with the 16-bit copy; a 16-bit gradient saves 2.
#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd/adam.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd/pack-inl.h"

#ifndef DSTRAIN_SIMD_ADAM_ONCE
#define DSTRAIN_SIMD_ADAM_ONCE
namespace dstrain::simd {
namespace {
struct AdamStep {
  float grad_scale, rest1, rest2, inverse_correction1, inverse_correction2;
  float lr, eps, l2, decay;  // l2 is added to the gradient, decay to the update

  AdamStep(const StepState& s, const AdamAttrs& a)
      : grad_scale(s.grad_scale),
        rest1(static_cast<float>(1.0 - s.beta1)),
        rest2(static_cast<float>(1.0 - s.beta2)),
        inverse_correction1(static_cast<float>(1.0 / static_cast<double>(s.bias_correction1))),
        inverse_correction2(static_cast<float>(1.0 / static_cast<double>(s.bias_correction2))),
        lr(a.beside_muon ? s.adam_lr : s.lr),
        eps(a.eps),
        l2(a.decoupled_decay ? 0.0f : a.weight_decay),
        decay(a.decoupled_decay ? a.weight_decay : 0.0f) {}
};
struct AdamOperands {
  const void* grad;
  float *master, *m, *v;
  void* param;  // may be null
};
}  // namespace
}  // namespace dstrain::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

// Prefetch distance in elements. The square root and the division delay so many instructions that the
// hardware's out-of-order window is too short: on Sapphire Rapids prefetching saves 5 to 15 % of the time. Four
// times this distance makes Zen 4 a fifth slower; this one costs it nothing.
constexpr int64_t kPrefetchDistance = 128;

struct NoCopy {};

// `copy` points to the 16-bit weights; its type is NoCopy* if there are none.
template <class G, class T>
SIMD_FN void adam_range_of(const AdamStep& s, const AdamOperands& o, const G* grad, T* copy,
                           int64_t begin, int64_t end) {
  const Pack grad_scale = all(s.grad_scale), l2 = all(s.l2), decay = all(s.decay);
  const Pack rest1 = all(s.rest1), rest2 = all(s.rest2), minus_lr = all(-s.lr), eps = all(s.eps);
  const Pack correct1 = all(s.inverse_correction1), correct2 = all(s.inverse_correction2);
  for_packs(begin, end, [=](int64_t i, auto n) SIMD_INLINE {
    __builtin_prefetch(grad + i + kPrefetchDistance);
    for (float* stream : {o.master, o.m, o.v})
      __builtin_prefetch(stream + i + kPrefetchDistance, 1);
    const Pack p = load(o.master + i, n);
    const Pack g = fma(l2, p, load(grad + i, n) * grad_scale);
    const Pack old_m = load(o.m + i, n), old_v = load(o.v + i, n);
    const Pack m = fma(rest1, g - old_m, old_m);
    const Pack v = fma(rest2, g * g - old_v, old_v);
    const Pack step = (m * correct1) / (square_root(v * correct2) + eps);
    const Pack next = fma(minus_lr, fma(decay, p, step), p);
    store(m, o.m + i, n);
    store(v, o.v + i, n);
    store(next, o.master + i, n);
    if constexpr (!std::is_same_v<T, NoCopy>) store(next, copy + i, n);
  });
}

void adam_range(const AdamStep& s, const AdamOperands& o, DType grad, DType param, int64_t begin,
                int64_t end) {
  with_type(grad, [&](auto g) SIMD_INLINE {
    const auto* gradient = static_cast<const decltype(g)*>(o.grad);
    if (!o.param) return adam_range_of(s, o, gradient, static_cast<NoCopy*>(nullptr), begin, end);
    with_type(param, [&](auto t) SIMD_INLINE {
      adam_range_of(s, o, gradient, static_cast<decltype(t)*>(o.param), begin, end);
    });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain::simd {
HWY_EXPORT(adam_range);

std::unique_ptr<Kernel> make_adam(const KernelSpec& spec) {
  return kernel_of(
      [threads = spec.threads, n = elements(spec.in[0]), attrs = attrs_as<AdamAttrs>(spec.attrs),
       grad = spec.in[0].dtype,
       param = present(spec.out, 3) ? spec.out[3].dtype : DType::f32](const KernelCall& call) {
        if (call.state->skip) return;
        const AdamStep step(*call.state, attrs);
        const AdamOperands o{data(call.in, 0), data<float>(call.out, 0), data<float>(call.out, 1),
                             data<float>(call.out, 2), data(call.out, 3)};
        parallel_ranges(threads, n, kFlatGrain, [&](int64_t begin, int64_t end) {
          HWY_DYNAMIC_DISPATCH(adam_range)(step, o, grad, param, begin, end);
        });
      });
}

}  // namespace dstrain::simd
#endif
