// Steps with a frozen second moment v, between which signs travel: 1-bit Adam (Tang et al., 2021), 1-bit Lamb (Li et al.,
// 2021) and 0/1 Adam (Lu et al., 2022). Where v is 0 there has never been a gradient; momenta, which are what the signs of
// neighbours left there, count as 0. `scale`, `average` and `factor` are values of the whole parameter
// (kernels/lamb_rate.h). Minimum memory traffic in bytes per parameter:
// local_momentum: s = m share,  x = s + (1 - beta1) (weight grad grad_scale - s),  sum += lr x. The sum over ranks of x is
//   the momentum of the sum of their gradients. x is multiplied by the scale, if there is one; instead of m there may be
//   scale m, as it has come back from other ranks. A gradient that has travelled has the step's scale already. 16, with the
//   sum 24; a 16-bit gradient saves 2, and bits that say where v is above 0 (positive_bits) 3.88.
// positive_bits: where x is above 0. 4.13.
// frozen_adam: p -= lr (m / (sqrt(v) + eps) + weight_decay p), and the copy of the weight in the run's dtype. 16, with a
//   16-bit copy 18.
// local_weights: param = p - lrs weight_decay p - sum / (sqrt(v) + eps), lrs: the rates of the steps in `sum`. 16, of
//   16-bit parameters 14.
// end_local_steps: the same with this step's rate in lrs, written to p,  m = sum / lrs,  sum = 0. 24, with a 16-bit copy 26,
//   with an f32 copy 28.
// lamb_average: the average of the trust ratio of each parameter of a unit.
// momentum_scale: the scale of a parameter's momentum, in the first step with a frozen moment, in which `factor` is 0.
// frozen_lamb_direction, x being the sum of scaled momenta:
//   next = x / scale,  g = m + (next - m) / (1 - beta1),  fresh += (1 - beta2) (g^2 - fresh),  m = next
//   x = m / (sqrt(v) + eps),  direction = x + weight_decay p
//   largest = max over elements of (sqrt(v) + eps) / (sqrt(fresh) + eps), and of what was there
//   In the first step `fresh` begins with v. Where v is 0 the ratio is 1. 36.
// lamb_factor: the factor of each parameter of a unit, of what all ranks have of it.
// All but local_weights and positive_bits do nothing if state->skip is set, but that frozen_lamb_direction writes zeros
// to x and to direction.
#include <atomic>

#include "kernels/cpu/memory_bound/kernels.h"
#include "kernels/lamb_rate.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/memory_bound/optimizers/one_bit.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/memory_bound/codecs/bits-inl.h"
#include "kernels/cpu/memory_bound/optimizers/update-inl.h"
#include "runtime/core/isa/best_variant.h"

#ifndef DSTRAIN_SIMD_ONE_BIT_ONCE
#define DSTRAIN_SIMD_ONE_BIT_ONCE
namespace dstrain::simd {
namespace {
// Where the second moment of an element is above 0: its values, or bits that say it, if there are any.
struct SecondMoment {
  const float* values;
  const uint8_t* bits;
};
struct MomentumStep {
  float grad_scale, rest1, share, scale, lr;
  bool of_scaled;  // m is multiplied by the scale already, and where v is 0 anything
};
struct MomentumOperands {
  const void* grad;
  DType grad_type;
  SecondMoment v;
  const float* m;
  float *x, *sum;  // the sum may be null
};
struct FrozenAdamStep {
  float lr, eps, decay;
};
struct LocalMove {
  float eps, decay;  // lrs * weight_decay
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

// Calls f(positive), where positive(i, lanes) returns the lanes of the pack at i whose second moment is above 0.
template <class F>
SIMD_FN void with_positive(const SecondMoment& v, const F& f) {
  if (v.bits)
    f([bits = v.bits](int64_t i, auto n)
          SIMD_INLINE { return mask_of(load_bits(bits + i / 8, n)); });
  else
    f([values = v.values](int64_t i, auto n)
          SIMD_INLINE { return greater(load(values + i, n), all(0)); });
}

void momentum_range(const MomentumStep& s, const MomentumOperands& o, int64_t begin, int64_t end) {
  const Pack grad_scale = all(s.grad_scale), rest1 = all(s.rest1), share = all(s.share),
             scale = all(s.scale), lr = all(s.lr);
  with_type(o.grad_type, [&](auto t) SIMD_INLINE {
    const auto* grad = static_cast<const decltype(t)*>(o.grad);
    with_positive(o.v, [&](auto positive) SIMD_INLINE {
      for_packs(begin, end, [=, &s, &o](int64_t i, auto n) SIMD_INLINE {
        const Pack had = load(o.m + i, n), old = (s.of_scaled ? had / scale : had) * share;
        const Pack g = load(grad + i, n) * grad_scale;
        const Pack next = select_or_zero(positive(i, n), fma(rest1, g - old, old) * scale);
        store(next, o.x + i, n);
        if (o.sum) store(fma(lr, next, load(o.sum + i, n)), o.sum + i, n);
      });
    });
  });
}

void positive_bits_range(const float* x, uint8_t* bits, int64_t begin, int64_t end) {
  for_packs(begin, end, [=](int64_t i, auto n) SIMD_INLINE {
    store_bits(bits_of(greater(load(x + i, n), all(0))), bits + i / 8, n);
  });
}

// Returns m / (sqrt(v) + eps).
SIMD_FN Pack frozen_step(Pack m, Pack v, Pack eps) {
  return select_or_zero(greater(v, all(0)), m / (square_root(v) + eps));
}

// `o.grad`: the momentum.
void frozen_adam_range(const FrozenAdamStep& s, const UpdateOperands& o, const float* v,
                       int64_t begin, int64_t end) {
  const Pack decay = all(s.decay), minus_lr = all(-s.lr), eps = all(s.eps);
  update_range_f32(o, begin, end, [=](int64_t i, auto n, Pack p, Pack m) SIMD_INLINE {
    return fma(minus_lr, fma(decay, p, frozen_step(m, load(v + i, n), eps)), p);
  });
}

// Returns what local steps make of weights.
SIMD_FN Pack moved_weights(Pack p, Pack v, Pack sum, Pack eps, Pack minus_decay) {
  return fma(minus_decay, p, p - frozen_step(sum, v, eps));
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

std::unique_ptr<Kernel> make_local_momentum(const KernelSpec& spec) {
  return kernel_of([threads = spec.threads, n = elements(spec.in[0]), dtype = spec.in[0].dtype,
                    bits = spec.in[1].dtype == DType::u8, has_m = present(spec.in, 2),
                    has_scale = present(spec.in, 3),
                    attrs = attrs_as<LocalMomentumAttrs>(spec.attrs)](const KernelCall& call) {
    const StepState& s = *call.state;
    if (s.skip) return;
    const MomentumStep step{(attrs.scaled ? s.grad_scale : 1.0f) * attrs.weight,
                            static_cast<float>(1.0 - s.beta1),
                            attrs.share,
                            has_scale ? *data<const float>(call.in, 3) : 1.0f,
                            s.lr,
                            attrs.of_scaled};
    const MomentumOperands o{
        data(call.in, 0),
        dtype,
        {data<const float>(call.in, 1), bits ? data<const uint8_t>(call.in, 1) : nullptr},
        has_m ? data<const float>(call.in, 2) : data<float>(call.out, 0),
        data<float>(call.out, 0),
        data<float>(call.out, 1)};
    parallel_ranges(threads, n, kFlatGrain, [&](int64_t begin, int64_t end) {
      DSTRAIN_BEST(momentum_range)(step, o, begin, end);
    });
  });
}

std::unique_ptr<Kernel> make_positive_bits(const KernelSpec& spec) {
  return kernel_of([threads = spec.threads, n = elements(spec.in[0])](const KernelCall& call) {
    parallel_ranges(threads, n, kFlatGrain, [&](int64_t begin, int64_t end) {
      DSTRAIN_BEST(positive_bits_range)
      (data<const float>(call.in, 0), data<uint8_t>(call.out, 0), begin, end);
    });
  });
}

std::unique_ptr<Kernel> make_frozen_adam(const KernelSpec& spec) {
  return update_kernel(spec, 1,
                       [attrs = attrs_as<FrozenStepAttrs>(spec.attrs)](const KernelCall& call,
                                                                       const UpdateOperands& o) {
                         const FrozenAdamStep step{call.state->lr, attrs.eps, attrs.weight_decay};
                         return [o, step, v = data<const float>(call.in, 1)](int64_t begin,
                                                                             int64_t end) {
                           DSTRAIN_BEST(frozen_adam_range)(step, o, v, begin, end);
                         };
                       });
}

std::unique_ptr<Kernel> make_local_weights(const KernelSpec& spec) {
  return kernel_of([threads = spec.threads, n = elements(spec.in[0]), dtype = spec.out[0].dtype,
                    attrs = attrs_as<FrozenStepAttrs>(spec.attrs)](const KernelCall& call) {
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
                    attrs = attrs_as<FrozenStepAttrs>(spec.attrs),
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

std::unique_ptr<Kernel> make_frozen_lamb_direction(const KernelSpec& spec) {
  return kernel_of([threads = spec.threads, n = elements(spec.in[0]),
                    attrs = attrs_as<FrozenStepAttrs>(spec.attrs)](const KernelCall& call) {
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

}  // namespace dstrain::simd
#endif
