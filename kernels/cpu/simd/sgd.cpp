// sgd: torch.optim.SGD (momentum, dampening, nesterov, weight decay), and the 16-bit copy of the weight:
//   g = grad * grad_scale + weight_decay p
//   buffer = g at the first update, then momentum buffer + (1 - dampening) g
//   p -= lr (nesterov ? g + momentum buffer : buffer)          (lr g without momentum)
// The first update is the one that runs while state->applied_steps is 0; the caller must count it afterwards.
// Does nothing if state->skip is set. Minimum memory traffic: 12 bytes per parameter, 20 with momentum, and 2
// more for the copy; a 16-bit gradient saves 2.
#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd/sgd.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd/pack-inl.h"

#ifndef DSTRAIN_SIMD_SGD_ONCE
#define DSTRAIN_SIMD_SGD_ONCE
namespace dstrain::simd {
namespace {
struct SgdStep {
  float lr, grad_scale, decay, momentum, rest;
  bool first, nesterov;
};
struct SgdOperands {
  const void* grad;
  float *master, *buffer;  // buffer may be null
  void* param;             // may be null
};
}  // namespace
}  // namespace dstrain::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

template <class G, class T>
SIMD_FN void sgd_range_of(const SgdStep& s, const SgdOperands& o, const G* grad, T* copy,
                          int64_t begin, int64_t end) {
  const Pack grad_scale = all(s.grad_scale), decay = all(s.decay), momentum = all(s.momentum);
  const Pack rest = all(s.rest), minus_lr = all(-s.lr);
  for_packs(begin, end, [=](int64_t i, auto n) SIMD_INLINE {
    const Pack p = load(o.master + i, n);
    const Pack g = fma(decay, p, load(grad + i, n) * grad_scale);
    Pack step = g;
    if (o.buffer) {
      const Pack buffer = s.first ? g : fma(momentum, load(o.buffer + i, n), rest * g);
      store(buffer, o.buffer + i, n);
      step = s.nesterov ? fma(momentum, buffer, g) : buffer;
    }
    const Pack next = fma(minus_lr, step, p);
    store(next, o.master + i, n);
    if (copy) store(next, copy + i, n);
  });
}

void sgd_range(const SgdStep& s, const SgdOperands& o, DType grad, DType param, int64_t begin,
               int64_t end) {
  with_type(grad, [&](auto g) SIMD_INLINE {
    with_type(param, [&](auto t) SIMD_INLINE {
      sgd_range_of(s, o, static_cast<const decltype(g)*>(o.grad),
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
HWY_EXPORT(sgd_range);

std::unique_ptr<Kernel> make_sgd(const KernelSpec& spec) {
  return kernel_of(
      [threads = spec.threads, n = elements(spec.in[0]), attrs = attrs_as<SgdAttrs>(spec.attrs),
       grad = spec.in[0].dtype,
       param = present(spec.out, 2) ? spec.out[2].dtype : DType::f32](const KernelCall& call) {
        const StepState& state = *call.state;
        if (state.skip) return;
        const SgdStep step{state.lr,       state.grad_scale,    attrs.weight_decay,
                           attrs.momentum, 1 - attrs.dampening, state.applied_steps == 0,
                           attrs.nesterov};
        const SgdOperands o{data(call.in, 0), data<float>(call.out, 0), data<float>(call.out, 1),
                            data(call.out, 2)};
        parallel_ranges(threads, n, kFlatGrain, [&](int64_t begin, int64_t end) {
          HWY_DYNAMIC_DISPATCH(sgd_range)(step, o, grad, param, begin, end);
        });
      });
}

}  // namespace dstrain::simd
#endif
