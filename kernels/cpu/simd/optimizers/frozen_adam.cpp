// Updates with a momentum that travels (1-bit Adam, Tang et al., 2021), whose second moment is frozen.
// local_momentum: s = m / ranks,  m = s + (1 - beta1) (grad * grad_scale - s), so that the sum over ranks is the
// momentum of the sum of their gradients. m is 0 where v is 0: there has never been a gradient, and m is what the
// signs of neighbours left there. Minimum memory traffic: 16 bytes per parameter; a 16-bit gradient saves 2. A gradient
// that has travelled is scaled already. Bits may say where v is above 0 (positive_bits): they take 0.125 bytes in place
// of 4.
// frozen_adam: p -= lr (m / (sqrt(v) + eps) + weight_decay p), where v is 0 with m = 0, and the copy of the weight in
// the run's dtype. Minimum memory traffic: 16 bytes per parameter, 18 with a 16-bit copy.
// Both do nothing if state->skip is set.
// positive_bits: where x is above 0. Minimum memory traffic: 4.13 bytes per element.
#include "kernels/cpu/simd/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd/optimizers/frozen_adam.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd/codecs/bits-inl.h"
#include "kernels/cpu/simd/optimizers/second_moment-inl.h"
#include "kernels/cpu/simd/optimizers/update-inl.h"
#include "runtime/core/isa/best_variant.h"

#ifndef DSTRAIN_SIMD_FROZEN_ADAM_ONCE
#define DSTRAIN_SIMD_FROZEN_ADAM_ONCE
namespace dstrain::simd {
namespace {
struct MomentumStep {
  float grad_scale, rest1, share;  // grad_scale is 1 for a gradient that is scaled already
};
struct FrozenAdamStep {
  float lr, eps, decay;
};
}  // namespace
}  // namespace dstrain::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

// positive(i, lanes) returns the lanes of the pack at i whose second moment is above 0.
template <class G, class Positive>
SIMD_FN void momentum_range_of(const MomentumStep& s, const G* grad, float* m, int64_t begin,
                               int64_t end, const Positive& positive) {
  const Pack scale = all(s.grad_scale), rest1 = all(s.rest1), share = all(s.share);
  for_packs(begin, end, [=](int64_t i, auto n) SIMD_INLINE {
    const Pack old = load(m + i, n) * share, g = load(grad + i, n) * scale;
    store(select_or_zero(positive(i, n), fma(rest1, g - old, old)), m + i, n);
  });
}

void momentum_range(const MomentumStep& s, DType dtype, const void* grad, const SecondMoment& v,
                    float* m, int64_t begin, int64_t end) {
  with_type(dtype, [&](auto t) SIMD_INLINE {
    const auto* g = static_cast<const decltype(t)*>(grad);
    with_positive(
        v, [&](auto positive) SIMD_INLINE { momentum_range_of(s, g, m, begin, end, positive); });
  });
}

void positive_bits_range(const float* x, uint8_t* bits, int64_t begin, int64_t end) {
  for_packs(begin, end, [=](int64_t i, auto n) SIMD_INLINE {
    store_bits(bits_of(greater(load(x + i, n), all(0))), bits + i / 8, n);
  });
}

void frozen_adam_range(const FrozenAdamStep& s, const UpdateOperands& o, const float* v,
                       int64_t begin, int64_t end) {
  const Pack decay = all(s.decay), minus_lr = all(-s.lr), eps = all(s.eps);
  update_range_f32(o, begin, end, [=](int64_t i, auto n, Pack p, Pack m) SIMD_INLINE {
    const Pack second = load(v + i, n);
    const Pack step = select_or_zero(greater(second, all(0)), m / (square_root(second) + eps));
    return fma(minus_lr, fma(decay, p, step), p);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain::simd {

std::unique_ptr<Kernel> make_local_momentum(const KernelSpec& spec) {
  return kernel_of([threads = spec.threads, n = elements(spec.in[0]), dtype = spec.in[0].dtype,
                    attrs = attrs_as<LocalMomentumAttrs>(spec.attrs)](const KernelCall& call) {
    const StepState& s = *call.state;
    if (s.skip) return;
    const MomentumStep step{attrs.scaled ? s.grad_scale : 1.0f, static_cast<float>(1.0 - s.beta1),
                            1.0f / static_cast<float>(attrs.ranks)};
    const SecondMoment v = second_moment_of(call, 1);
    parallel_ranges(threads, n, kFlatGrain, [&](int64_t begin, int64_t end) {
      DSTRAIN_BEST(momentum_range)
      (step, dtype, data(call.in, 0), v, data<float>(call.out, 0), begin, end);
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
                       [attrs = attrs_as<FrozenAdamAttrs>(spec.attrs)](const KernelCall& call,
                                                                       const UpdateOperands& o) {
                         const FrozenAdamStep step{call.state->lr, attrs.eps, attrs.weight_decay};
                         return [o, step, v = data<const float>(call.in, 1)](int64_t begin,
                                                                             int64_t end) {
                           DSTRAIN_BEST(frozen_adam_range)(step, o, v, begin, end);
                         };
                       });
}

}  // namespace dstrain::simd
#endif
