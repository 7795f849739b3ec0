// lamb_direction: the moments and the direction of Lamb (You et al., 2020), without bias corrections:
//   g = grad * grad_scale,  m += (1 - beta1) (g - m),  v += (1 - beta2) (g^2 - v)
//   u = m / (sqrt(v) + eps) + weight_decay p          (eps_inside_sqrt: m / sqrt(v + eps))
// Minimum memory traffic: 28 bytes per parameter (reads g, p, m, v; writes m, v, u); a 16-bit gradient saves 2.
// lamb: p -= rate u, with the rate of the whole parameter (kernels/lamb_rate.h), of its square sums or of 1-bit Lamb's
// average and factor, and the 16-bit copy of the weight.
// Minimum memory traffic: 12 bytes per parameter, 14 with the copy.
// Both do nothing if state->skip is set, but that lamb_direction writes zeros to u.
#include "kernels/cpu/memory_bound/kernels.h"
#include "kernels/lamb_rate.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/memory_bound/optimizers/lamb.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/memory_bound/optimizers/update-inl.h"
#include "runtime/core/isa/best_variant.h"

#ifndef DSTRAIN_SIMD_LAMB_ONCE
#define DSTRAIN_SIMD_LAMB_ONCE
namespace dstrain::simd {
namespace {
struct LambStep {
  float grad_scale, rest1, rest2, eps, decay;
  bool eps_inside_sqrt;
};
struct LambOperands {
  const void* grad;
  const float* master;
  float *m, *v, *direction;
};
}  // namespace
}  // namespace dstrain::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

template <class G>
SIMD_FN void direction_range_of(const LambStep& s, const LambOperands& o, const G* grad,
                                int64_t begin, int64_t end) {
  const Pack grad_scale = all(s.grad_scale), decay = all(s.decay);
  const Pack rest1 = all(s.rest1), rest2 = all(s.rest2);
  // One of the two is 0, so that v + inside and + outside are exact where they do not apply.
  const Pack inside = all(s.eps_inside_sqrt ? s.eps : 0);
  const Pack outside = all(s.eps_inside_sqrt ? 0 : s.eps);
  for_packs(begin, end, [=](int64_t i, auto n) SIMD_INLINE {
    const Pack g = load(grad + i, n) * grad_scale;
    const Pack old_m = load(o.m + i, n), old_v = load(o.v + i, n);
    const Pack m = fma(rest1, g - old_m, old_m);
    const Pack v = fma(rest2, g * g - old_v, old_v);
    const Pack step = m / (square_root(v + inside) + outside);
    store(m, o.m + i, n);
    store(v, o.v + i, n);
    store(fma(decay, load(o.master + i, n), step), o.direction + i, n);
  });
}

void direction_range(const LambStep& s, const LambOperands& o, DType grad, int64_t begin,
                     int64_t end) {
  with_type(grad, [&](auto g) SIMD_INLINE {
    direction_range_of(s, o, static_cast<const decltype(g)*>(o.grad), begin, end);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain::simd {

std::unique_ptr<Kernel> make_lamb_direction(const KernelSpec& spec) {
  return kernel_of([threads = spec.threads, n = elements(spec.in[0]),
                    attrs = attrs_as<LambDirectionAttrs>(spec.attrs),
                    grad = spec.in[0].dtype](const KernelCall& call) {
    const StepState& state = *call.state;
    const LambOperands o{data(call.in, 0), data<const float>(call.in, 1), data<float>(call.out, 0),
                         data<float>(call.out, 1), data<float>(call.out, 2)};
    if (state.skip) {
      std::fill_n(o.direction, n, 0.0f);
      return;
    }
    const LambStep step{state.grad_scale,
                        static_cast<float>(1.0 - state.beta1),
                        static_cast<float>(1.0 - state.beta2),
                        attrs.eps,
                        attrs.weight_decay,
                        attrs.eps_inside_sqrt};
    parallel_ranges(threads, n, kFlatGrain, [&](int64_t begin, int64_t end) {
      DSTRAIN_BEST(direction_range)(step, o, grad, begin, end);
    });
  });
}

std::unique_ptr<Kernel> make_lamb(const KernelSpec& spec) {
  return update_kernel(
      spec, 1,
      [attrs = attrs_as<LambAttrs>(spec.attrs), sums = elements(spec.in[1]),
       frozen = present(spec.in, 2)](const KernelCall& call, const UpdateOperands& o) {
        const float rate =
            frozen ? frozen_lamb_rate(*call.state, attrs, *data<const float>(call.in, 1),
                                      *data<const float>(call.in, 2))
                   : lamb_rate(*call.state, attrs, data<const double>(call.in, 1),
                               sums / (2 * attrs.parameters));
        return [o, rate](int64_t begin, int64_t end) {
          DSTRAIN_BEST(step_along_range)(rate, o, begin, end);
        };
      });
}

}  // namespace dstrain::simd
#endif
