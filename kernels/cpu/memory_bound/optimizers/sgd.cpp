// sgd: torch.optim.SGD (momentum, dampening, nesterov, weight decay), and the 16-bit copy of the weight:
//   g = grad * grad_scale + weight_decay p
//   buffer = g at the first update, then momentum buffer + (1 - dampening) g
//   p -= lr (nesterov ? g + momentum buffer : buffer)          (lr g without momentum)
// The first update is the one that runs while state->applied_steps is 0; the caller must count it afterwards.
// Does nothing if state->skip is set. Minimum memory traffic: 12 bytes per parameter, 20 with momentum, and 2
// more for the copy; a 16-bit gradient saves 2.
#include "kernels/cpu/memory_bound/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/memory_bound/optimizers/sgd.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/memory_bound/optimizers/update-inl.h"
#include "runtime/core/isa/best_variant.h"

#ifndef DSTRAIN_SIMD_SGD_ONCE
#define DSTRAIN_SIMD_SGD_ONCE
namespace dstrain::simd {
namespace {
struct SgdStep {
  float lr, grad_scale, decay, momentum, rest;
  bool first, nesterov;
};
}  // namespace
}  // namespace dstrain::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

// `buffer` may be null.
void sgd_range(const SgdStep& s, const UpdateOperands& o, float* buffer, int64_t begin,
               int64_t end) {
  const Pack grad_scale = all(s.grad_scale), decay = all(s.decay), momentum = all(s.momentum);
  const Pack rest = all(s.rest), minus_lr = all(-s.lr);
  update_range(o, begin, end, [=](int64_t i, auto n, Pack p, Pack grad) SIMD_INLINE {
    const Pack g = fma(decay, p, grad * grad_scale);
    Pack step = g;
    if (buffer) {
      const Pack next = s.first ? g : fma(momentum, load(buffer + i, n), rest * g);
      store(next, buffer + i, n);
      step = s.nesterov ? fma(momentum, next, g) : next;
    }
    return fma(minus_lr, step, p);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain::simd {

std::unique_ptr<Kernel> make_sgd(const KernelSpec& spec) {
  return update_kernel(
      spec, 2,
      [attrs = attrs_as<SgdAttrs>(spec.attrs)](const KernelCall& call, const UpdateOperands& o) {
        const StepState& state = *call.state;
        const SgdStep step{
            state.lr * attrs.lr_scale, state.grad_scale,         attrs.weight_decay, attrs.momentum,
            1 - attrs.dampening,       state.applied_steps == 0, attrs.nesterov};
        return [o, step, buffer = data<float>(call.out, 1)](int64_t begin, int64_t end) {
          DSTRAIN_BEST(sgd_range)(step, o, buffer, begin, end);
        };
      });
}

}  // namespace dstrain::simd
#endif
