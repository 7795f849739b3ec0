// adagrad: torch.optim.Adagrad without decay of its learning rate, and the 16-bit copy of the weight:
//   g = grad * grad_scale + weight_decay p
//   sum += g^2
//   p -= lr g / (sqrt(sum) + eps)
// Does nothing if state->skip is set. Minimum memory traffic: 20 bytes per parameter (reads g, p, sum; writes p, sum),
// 22 with the 16-bit copy; a 16-bit gradient saves 2.
#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd/adagrad.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd/pack-inl.h"

#ifndef DSTRAIN_SIMD_ADAGRAD_ONCE
#define DSTRAIN_SIMD_ADAGRAD_ONCE
namespace dstrain::simd {
namespace {
struct AdagradStep {
  float lr, grad_scale, eps, decay;
};
struct AdagradOperands {
  const void* grad;
  float *master, *sum;
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
SIMD_FN void adagrad_range_of(const AdagradStep& s, const AdagradOperands& o, const G* grad,
                              T* copy, int64_t begin, int64_t end) {
  const Pack grad_scale = all(s.grad_scale), decay = all(s.decay);
  const Pack minus_lr = all(-s.lr), eps = all(s.eps);
  for_packs(begin, end, [=](int64_t i, auto n) SIMD_INLINE {
    const Pack p = load(o.master + i, n);
    const Pack g = fma(decay, p, load(grad + i, n) * grad_scale);
    const Pack sum = fma(g, g, load(o.sum + i, n));
    const Pack next = fma(minus_lr, g / (square_root(sum) + eps), p);
    store(sum, o.sum + i, n);
    store(next, o.master + i, n);
    if (copy) store(next, copy + i, n);
  });
}

void adagrad_range(const AdagradStep& s, const AdagradOperands& o, DType grad, DType param,
                   int64_t begin, int64_t end) {
  with_type(grad, [&](auto g) SIMD_INLINE {
    with_type(param, [&](auto t) SIMD_INLINE {
      adagrad_range_of(s, o, static_cast<const decltype(g)*>(o.grad),
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
HWY_EXPORT(adagrad_range);

std::unique_ptr<Kernel> make_adagrad(const KernelSpec& spec) {
  return kernel_of(
      [threads = spec.threads, n = elements(spec.in[0]), attrs = attrs_as<AdagradAttrs>(spec.attrs),
       grad = spec.in[0].dtype,
       param = present(spec.out, 2) ? spec.out[2].dtype : DType::f32](const KernelCall& call) {
        const StepState& state = *call.state;
        if (state.skip) return;
        const AdagradStep step{state.lr, state.grad_scale, attrs.eps, attrs.weight_decay};
        const AdagradOperands o{data(call.in, 0), data<float>(call.out, 0),
                                data<float>(call.out, 1), data(call.out, 2)};
        parallel_ranges(threads, n, kFlatGrain, [&](int64_t begin, int64_t end) {
          HWY_DYNAMIC_DISPATCH(adagrad_range)(step, o, grad, param, begin, end);
        });
      });
}

}  // namespace dstrain::simd
#endif
