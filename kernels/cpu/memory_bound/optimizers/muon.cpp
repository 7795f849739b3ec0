// muon_momentum: Muon's momentum and the direction before it is orthogonalised (Nesterov):
//   g = grad * grad_scale,  m += (1 - momentum) (g - m),  direction = m + (1 - momentum) (g - m)
// Minimum memory traffic: 16 bytes per parameter (reads g, m; writes m, direction); a 16-bit gradient saves 2. If
// state->skip is set, m stays and the direction is 0.
// muon: p -= lr (scale direction + weight_decay p), and the 16-bit copy of the weight. Does nothing if state->skip is
// set. Minimum memory traffic: 12 bytes per parameter, 14 with the copy.
#include "kernels/cpu/memory_bound/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/memory_bound/optimizers/muon.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/memory_bound/optimizers/update-inl.h"
#include "runtime/core/isa/best_variant.h"

#ifndef DSTRAIN_SIMD_MUON_ONCE
#define DSTRAIN_SIMD_MUON_ONCE
namespace dstrain::simd {
namespace {
struct MuonStep {
  float lr, scale, decay;
};
}  // namespace
}  // namespace dstrain::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

void momentum_range(float grad_scale, float rest, DType dtype, const void* grad, float* m,
                    float* direction, int64_t begin, int64_t end) {
  const Pack all_scale = all(grad_scale), all_rest = all(rest);
  with_type(dtype, [&](auto t) SIMD_INLINE {
    const auto* const gradient = static_cast<const decltype(t)*>(grad);
    for_packs(begin, end, [=](int64_t i, auto n) SIMD_INLINE {
      const Pack g = load(gradient + i, n) * all_scale, old = load(m + i, n);
      const Pack next = fma(all_rest, g - old, old);
      store(next, m + i, n);
      store(fma(all_rest, g - next, next), direction + i, n);
    });
  });
}

void muon_range(const MuonStep& s, const UpdateOperands& o, int64_t begin, int64_t end) {
  const Pack minus_lr = all(-s.lr), scale = all(s.scale), decay = all(s.decay);
  update_range_f32(o, begin, end, [=](int64_t, auto, Pack p, Pack direction) SIMD_INLINE {
    return fma(minus_lr, fma(decay, p, direction * scale), p);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain::simd {

std::unique_ptr<Kernel> make_muon_momentum(const KernelSpec& spec) {
  return kernel_of(
      [threads = spec.threads, n = elements(spec.in[0]), grad = spec.in[0].dtype,
       rest = static_cast<float>(1.0 - attrs_as<MuonMomentumAttrs>(spec.attrs).momentum)](
          const KernelCall& call) {
        const StepState& state = *call.state;
        float *const m = data<float>(call.out, 0), *const direction = data<float>(call.out, 1);
        if (state.skip) {
          std::fill_n(direction, n, 0.0f);
          return;
        }
        parallel_ranges(threads, n, kFlatGrain, [&](int64_t begin, int64_t end) {
          DSTRAIN_BEST(momentum_range)
          (state.grad_scale, rest, grad, data(call.in, 0), m, direction, begin, end);
        });
      });
}

std::unique_ptr<Kernel> make_muon(const KernelSpec& spec) {
  return update_kernel(
      spec, 1,
      [attrs = attrs_as<MuonAttrs>(spec.attrs)](const KernelCall& call, const UpdateOperands& o) {
        const MuonStep step{call.state->lr * attrs.lr_scale, attrs.scale, attrs.weight_decay};
        return [o, step](int64_t begin, int64_t end) {
          DSTRAIN_BEST(muon_range)(step, o, begin, end);
        };
      });
}

}  // namespace dstrain::simd
#endif
