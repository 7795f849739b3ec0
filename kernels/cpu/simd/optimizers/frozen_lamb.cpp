// 1-bit Lamb (Li et al., 2021): what it keeps of its first steps, and its steps with a frozen second moment. `scale`,
// `average` and `factor` are values of the whole parameter (kernels/lamb_rate.h).
// lamb_average: the average of the trust ratio of each parameter of a unit.
// momentum_scale: the scale of a parameter's momentum, in the first step with a frozen moment, in which `factor` is 0.
// scaled_momentum: s = m / ranks,  x = scale (s + (1 - beta1) (grad * grad_scale - s)), 0 where v is 0, so that the sum
//   over ranks is the scaled momentum of the sum of their gradients. m stays, unless x takes its place. Bits may say
//   where v is above 0, and instead of m there may be scale m, as it has come back from other ranks. Minimum memory
//   traffic: 16 bytes per parameter; a 16-bit gradient saves 2, and bits 3.88.
// frozen_lamb_direction, x being that sum:
//   next = x / scale,  g = m + (next - m) / (1 - beta1),  fresh += (1 - beta2) (g^2 - fresh),  m = next
//   x = m / (sqrt(v) + eps),  direction = x + weight_decay p
//   largest = max over elements of (sqrt(v) + eps) / (sqrt(fresh) + eps), and of what was there
//   In the first step `fresh` begins with v. Where v is 0 there has never been a gradient: x and m become 0, and the
//   ratio is 1. Minimum memory traffic: 36 bytes per parameter.
// lamb_factor: the factor of each parameter of a unit, of what all ranks have of it.
// frozen_lamb: p -= lr average factor direction, and the copy of the weight in the run's dtype. Minimum memory traffic:
//   12 bytes per parameter, 14 with a 16-bit copy.
// All do nothing if state->skip is set, but that frozen_lamb_direction writes zeros to x and to direction.
#include <atomic>

#include "kernels/cpu/simd/kernels.h"
#include "kernels/lamb_rate.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd/optimizers/frozen_lamb.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd/optimizers/second_moment-inl.h"
#include "kernels/cpu/simd/optimizers/update-inl.h"
#include "runtime/core/isa/best_variant.h"

#ifndef DSTRAIN_SIMD_FROZEN_LAMB_ONCE
#define DSTRAIN_SIMD_FROZEN_LAMB_ONCE
namespace dstrain::simd {
namespace {
struct ScaledStep {
  float grad_scale, rest1, share, scale;
  bool of_scaled;  // m is multiplied by the scale already, and where v is 0 anything
};
struct FrozenLambStep {
  float scale, rest1, rest2, eps, decay;
  bool first;  // the fresh moment begins with the frozen one
};
struct FrozenLambOperands {
  const float *v, *master;
  float *x, *m, *fresh, *direction;
};
}  // namespace
}  // namespace dstrain::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

void scaled_momentum_range(const ScaledStep& s, DType dtype, const void* all_grad,
                           const SecondMoment& v, const float* m, float* x, int64_t begin,
                           int64_t end) {
  const Pack grad_scale = all(s.grad_scale), rest1 = all(s.rest1), share = all(s.share),
             scale = all(s.scale);
  with_type(dtype, [&](auto t) SIMD_INLINE {
    const auto* grad = static_cast<const decltype(t)*>(all_grad);
    with_positive(v, [&](auto positive) SIMD_INLINE {
      for_packs(begin, end, [=](int64_t i, auto n) SIMD_INLINE {
        const Pack had = load(m + i, n), old = (s.of_scaled ? had / scale : had) * share;
        const Pack g = load(grad + i, n) * grad_scale;
        store(select_or_zero(positive(i, n), fma(rest1, g - old, old) * scale), x + i, n);
      });
    });
  });
}

// Returns the largest ratio.
float frozen_lamb_range(const FrozenLambStep& s, const FrozenLambOperands& o, int64_t begin,
                        int64_t end) {
  const Pack scale = all(s.scale), rest1 = all(s.rest1), rest2 = all(s.rest2), eps = all(s.eps),
             decay = all(s.decay);
  Pack most = all(0);
  for_packs(begin, end, [&](int64_t i, auto n) SIMD_INLINE {
    const Pack v = load(o.v + i, n), m = load(o.m + i, n);
    const Mask moves = greater(v, all(0));
    const Pack next = select_or_zero(moves, load(o.x + i, n) / scale);
    const Pack g = m + (next - m) / rest1;
    const Pack before = s.first ? v : load(o.fresh + i, n);
    const Pack fresh = fma(rest2, g * g - before, before);
    const Pack root = square_root(v) + eps;
    const Pack step = select_or_zero(moves, next / root);
    const Pack ratio = select(moves, root / (square_root(fresh) + eps), all(1));
    most = maximum(most, keep(n, ratio));
    store(next, o.m + i, n);
    store(fresh, o.fresh + i, n);
    store(step, o.x + i, n);
    store(fma(decay, load(o.master + i, n), step), o.direction + i, n);
  });
  return largest(most);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain::simd {

namespace {

// *p = max(*p, x). Several threads may raise it at once.
void raise_to(float* p, float x) {
  std::atomic_ref<float> value(*p);
  float old = value.load(std::memory_order_relaxed);
  while (old < x && !value.compare_exchange_weak(old, x, std::memory_order_relaxed)) continue;
}

// Returns the sum of squares: chain i mod 256 adds element i, in order, and the chains are added as a tree.
double square_sum_of(const float* x, int64_t n) {
  constexpr int64_t kChains = 256;
  double chains[kChains] = {};
  for (int64_t i = 0; i < n; ++i) {
    const auto wide = static_cast<double>(x[i]);
    chains[i % kChains] += wide * wide;
  }
  for (int64_t half = kChains / 2; half > 0; half /= 2)
    for (int64_t k = 0; k < half; ++k) chains[k] += chains[k + half];
  return chains[0];
}

}  // namespace

std::unique_ptr<Kernel> make_lamb_average(const KernelSpec& spec) {
  return kernel_of([parameters = elements(spec.out[0]), sums = elements(spec.in[0]),
                    attrs = attrs_as<LambAverageAttrs>(spec.attrs)](const KernelCall& call) {
    if (call.state->skip) return;
    auto* average = data<float>(call.out, 0);
    for (int64_t p = 0; p < parameters; ++p)
      average[p] =
          lamb_average(attrs, average[p],
                       lamb_trust(attrs.min_coeff, attrs.max_coeff, data<const double>(call.in, 0),
                                  sums / (2 * parameters), p, parameters));
  });
}

std::unique_ptr<Kernel> make_momentum_scale(const KernelSpec& spec) {
  return kernel_of([n = elements(spec.in[0])](const KernelCall& call) {
    if (call.state->skip || *data<const float>(call.in, 1) != 0) return;
    *data<float>(call.out, 0) = momentum_scale(square_sum_of(data<const float>(call.in, 0), n), n);
  });
}

std::unique_ptr<Kernel> make_scaled_momentum(const KernelSpec& spec) {
  return kernel_of([threads = spec.threads, n = elements(spec.in[0]), dtype = spec.in[0].dtype,
                    attrs = attrs_as<LocalMomentumAttrs>(spec.attrs)](const KernelCall& call) {
    const StepState& s = *call.state;
    if (s.skip) return;
    const ScaledStep step{attrs.scaled ? s.grad_scale : 1.0f, static_cast<float>(1.0 - s.beta1),
                          1.0f / static_cast<float>(attrs.ranks), *data<const float>(call.in, 3),
                          attrs.of_scaled};
    const SecondMoment v = second_moment_of(call, 1);
    parallel_ranges(threads, n, kFlatGrain, [&](int64_t begin, int64_t end) {
      DSTRAIN_BEST(scaled_momentum_range)
      (step, dtype, data(call.in, 0), v, data<const float>(call.in, 2), data<float>(call.out, 0),
       begin, end);
    });
  });
}

std::unique_ptr<Kernel> make_frozen_lamb_direction(const KernelSpec& spec) {
  return kernel_of([threads = spec.threads, n = elements(spec.in[0]),
                    attrs = attrs_as<FrozenLambAttrs>(spec.attrs)](const KernelCall& call) {
    const StepState& s = *call.state;
    const FrozenLambOperands o{data<const float>(call.in, 0), data<const float>(call.in, 1),
                               data<float>(call.out, 0),      data<float>(call.out, 1),
                               data<float>(call.out, 2),      data<float>(call.out, 3)};
    if (s.skip) {
      std::fill_n(o.x, n, 0.0f);
      std::fill_n(o.direction, n, 0.0f);
      return;
    }
    const FrozenLambStep step{*data<const float>(call.in, 2),
                              static_cast<float>(1.0 - s.beta1),
                              static_cast<float>(1.0 - s.beta2),
                              attrs.eps,
                              attrs.weight_decay,
                              *data<const float>(call.in, 3) == 0};
    parallel_ranges(threads, n, kFlatGrain, [&](int64_t begin, int64_t end) {
      raise_to(data<float>(call.out, 4), DSTRAIN_BEST(frozen_lamb_range)(step, o, begin, end));
    });
  });
}

std::unique_ptr<Kernel> make_lamb_factor(const KernelSpec& spec) {
  return kernel_of([parameters = elements(spec.out[0]), ratios = elements(spec.in[0]),
                    sums = elements(spec.in[1]),
                    attrs = attrs_as<LambFactorAttrs>(spec.attrs)](const KernelCall& call) {
    if (call.state->skip) return;
    auto* factor = data<float>(call.out, 0);
    const LambSlices slices{data<const float>(call.in, 0), ratios / parameters,
                            data<const double>(call.in, 1), sums / (2 * parameters), parameters};
    for (int64_t p = 0; p < parameters; ++p) factor[p] = lamb_factor(attrs, factor[p], slices, p);
  });
}

std::unique_ptr<Kernel> make_frozen_lamb(const KernelSpec& spec) {
  return update_kernel(spec, 1, [](const KernelCall& call, const UpdateOperands& o) {
    const float rate = frozen_lamb_rate(*call.state, *data<const float>(call.in, 1),
                                        *data<const float>(call.in, 2));
    return [o, rate](int64_t begin, int64_t end) {
      DSTRAIN_BEST(step_along_range)(rate, o, begin, end);
    };
  });
}

}  // namespace dstrain::simd
#endif
