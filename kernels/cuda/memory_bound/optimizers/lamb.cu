// lamb_direction and lamb: Lamb (You et al., 2020), with the bits and the formulas of
// kernels/cpu/memory_bound/optimizers/lamb.cpp.
// Minimum memory traffic per parameter: lamb_direction 28 bytes, 26 with a 16-bit gradient; lamb 12, 14 with a 16-bit
// copy of the weight.
#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"
#include "kernels/lamb_rate.h"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

constexpr int kN = pack_of(sizeof(float));

template <class G>
struct LambDirection {
  const StepState* state;
  float inside, outside, decay;  // eps within the square root or beside it; the other one is 0
  const G* grad;
  const float* master;
  float *m, *v, *direction;

  __device__ void operator()(int64_t at, int64_t n) const {
    const StepState& s = *state;
    float g[kN], p[kN], first[kN], second[kN], step[kN];
    if (s.skip) {
#pragma unroll
      for (int k = 0; k < kN; ++k) step[k] = 0;
      store(step, direction, at, n);
      return;
    }
    const auto rest1 = static_cast<float>(1.0 - s.beta1);
    const auto rest2 = static_cast<float>(1.0 - s.beta2);
    load(grad, at, n, g);
    load(master, at, n, p);
    load(m, at, n, first);
    load(v, at, n, second);
#pragma unroll
    for (int k = 0; k < kN; ++k) {
      const float slope = g[k] * s.grad_scale;
      first[k] = fmaf(rest1, slope - first[k], first[k]);
      second[k] = fmaf(rest2, slope * slope - second[k], second[k]);
      step[k] = fmaf(decay, p[k], first[k] / (sqrtf(second[k] + inside) + outside));
    }
    store(first, m, at, n);
    store(second, v, at, n);
    store(step, direction, at, n);
  }
};

template <class T>
struct Lamb {
  const StepState* state;
  LambAttrs attrs;
  const double* sums;  // null with 1-bit Lamb's average and factor in their place
  int64_t ranks;
  const float *average, *factor, *direction;
  float* master;
  T* copy;  // may be null

  __device__ void operator()(int64_t at, int64_t n) const {
    if (state->skip) return;
    const float rate = sums ? lamb_rate(*state, attrs, sums, ranks)
                            : frozen_lamb_rate(*state, attrs, *average, *factor);
    float u[kN], p[kN];
    load(direction, at, n, u);
    load(master, at, n, p);
#pragma unroll
    for (int k = 0; k < kN; ++k) p[k] = fmaf(-rate, u[k], p[k]);
    store(p, master, at, n);
    if (copy) store(p, copy, at, n);
  }
};

}  // namespace

std::unique_ptr<Kernel> make_lamb_direction(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of([context, n = elements(spec.in[0]), a = attrs_as<LambDirectionAttrs>(spec.attrs),
                    grad = spec.in[0].dtype](const KernelCall& call) {
    with_type(grad, [&](auto g) {
      float* m = data<float>(call.out, 0);
      launch_flat<kN>(
          context, "lamb_direction", m, n,
          LambDirection<decltype(g)>{
              call.state, a.eps_inside_sqrt ? a.eps : 0.0f, a.eps_inside_sqrt ? 0.0f : a.eps,
              a.weight_decay, data<const decltype(g)>(call.in, 0), data<const float>(call.in, 1), m,
              data<float>(call.out, 1), data<float>(call.out, 2)});
    });
  });
}

std::unique_ptr<Kernel> make_lamb(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of(
      [context, n = elements(spec.in[0]), a = attrs_as<LambAttrs>(spec.attrs),
       sums = elements(spec.in[1]), frozen = present(spec.in, 2),
       param = present(spec.out, 1) ? spec.out[1].dtype : DType::f32](const KernelCall& call) {
        with_type(param, [&](auto t) {
          float* master = data<float>(call.out, 0);
          launch_flat<kN>(
              context, "lamb", master, n,
              Lamb<decltype(t)>{call.state, a, frozen ? nullptr : data<const double>(call.in, 1),
                                sums / (2 * a.parameters), data<const float>(call.in, 1),
                                data<const float>(call.in, 2), data<const float>(call.in, 0),
                                master, data<decltype(t)>(call.out, 1)});
        });
      });
}

}  // namespace dstrain::DSTRAIN_BACKEND
