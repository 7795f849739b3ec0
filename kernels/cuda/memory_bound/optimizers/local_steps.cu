// The local steps of 0/1 Adam (Lu et al., 2022). They give the bits of kernels/cpu/simd/optimizers/local_steps.cpp,
// where v is 0 with m and sum 0:
//   local_step: m += (1 - beta1) (ranks * grad * grad_scale - m),  sum += lr m
//   local_weights: param = p - lrs weight_decay p - sum / (sqrt(v) + eps), lrs: the rates of the steps in `sum`
//   end_local_steps: the same with this step's rate in lrs, written to p,  m = sum / lrs,  sum = 0
// Minimum memory traffic, bytes per parameter: local_step 24 (22 with a 16-bit gradient), local_weights 16 (14 with
// 16-bit parameters), end_local_steps 24 (26 with a 16-bit copy, 28 with an f32 copy).
#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

constexpr int kN = pack_of(sizeof(float));

template <class G>
struct LocalStep {
  const StepState* state;
  float ranks;
  bool scaled;  // the gradient is multiplied by grad_scale
  const G* grad;
  const float* v;
  float *m, *sum;

  __device__ void operator()(int64_t at, int64_t n) const {
    const StepState& s = *state;
    if (s.skip) return;
    const auto rest1 = static_cast<float>(1.0 - s.beta1);
    const float scale = (scaled ? s.grad_scale : 1.0f) * ranks;
    float g[kN], second[kN], moving[kN], moved[kN];
    load(grad, at, n, g);
    load(v, at, n, second);
    load(m, at, n, moving);
    load(sum, at, n, moved);
#pragma unroll
    for (int k = 0; k < kN; ++k) {
      moving[k] = second[k] > 0 ? fmaf(rest1, g[k] * scale - moving[k], moving[k]) : 0.0f;
      moved[k] = fmaf(s.lr, moving[k], moved[k]);
    }
    store(moving, m, at, n);
    store(moved, sum, at, n);
  }
};

// Returns what local steps make of a weight.
__device__ __forceinline__ float moved_weight(float p, float v, float sum, float eps, float decay) {
  const float step = v > 0 ? sum / (sqrtf(v) + eps) : 0.0f;
  return fmaf(-decay, p, p - step);
}

template <class T>
struct LocalWeights {
  const StepState* state;
  float eps, weight_decay;
  const float *master, *v, *sum;
  T* params;

  __device__ void operator()(int64_t at, int64_t n) const {
    const float decay = static_cast<float>(state->local_lr) * weight_decay;
    float p[kN], second[kN], moved[kN];
    load(master, at, n, p);
    load(v, at, n, second);
    load(sum, at, n, moved);
#pragma unroll
    for (int k = 0; k < kN; ++k) p[k] = moved_weight(p[k], second[k], moved[k], eps, decay);
    store(p, params, at, n);
  }
};

template <class T>
struct EndLocalSteps {
  const StepState* state;
  float eps, weight_decay;
  const float* v;
  float *master, *m, *sum;
  T* copy;  // may be null

  __device__ void operator()(int64_t at, int64_t n) const {
    const StepState& s = *state;
    if (s.skip) return;
    const auto lrs = static_cast<float>(s.local_lr + static_cast<double>(s.lr));
    const float decay = lrs * weight_decay;
    float p[kN], second[kN], moved[kN], mean[kN], zeros[kN] = {};
    load(master, at, n, p);
    load(v, at, n, second);
    load(sum, at, n, moved);
#pragma unroll
    for (int k = 0; k < kN; ++k) {
      p[k] = moved_weight(p[k], second[k], moved[k], eps, decay);
      mean[k] = second[k] > 0 ? moved[k] / lrs : 0.0f;
    }
    store(p, master, at, n);
    if (lrs != 0) store(mean, m, at, n);
    store(zeros, sum, at, n);
    if (copy) store(p, copy, at, n);
  }
};

}  // namespace

std::unique_ptr<Kernel> make_local_step(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of([context, n = elements(spec.in[0]), dtype = spec.in[0].dtype,
                    attrs = attrs_as<LocalMomentumAttrs>(spec.attrs)](const KernelCall& call) {
    with_type(dtype, [&](auto g) {
      float* m = data<float>(call.out, 0);
      launch_flat<kN>(
          context, "local_step", m, n,
          LocalStep<decltype(g)>{call.state, static_cast<float>(attrs.ranks), attrs.scaled,
                                 data<const decltype(g)>(call.in, 0), data<const float>(call.in, 1),
                                 m, data<float>(call.out, 1)});
    });
  });
}

std::unique_ptr<Kernel> make_local_weights(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of([context, n = elements(spec.in[0]), dtype = spec.out[0].dtype,
                    a = attrs_as<FrozenAdamAttrs>(spec.attrs)](const KernelCall& call) {
    with_type(dtype, [&](auto t) {
      const auto* master = data<const float>(call.in, 0);
      launch_flat<kN>(context, "local_weights", master, n,
                      LocalWeights<decltype(t)>{
                          call.state, a.eps, a.weight_decay, master, data<const float>(call.in, 1),
                          data<const float>(call.in, 2), data<decltype(t)>(call.out, 0)});
    });
  });
}

std::unique_ptr<Kernel> make_end_local_steps(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of([context, n = elements(spec.in[0]), a = attrs_as<FrozenAdamAttrs>(spec.attrs),
                    param = present(spec.out, 3) ? spec.out[3].dtype
                                                 : DType::f32](const KernelCall& call) {
    with_type(param, [&](auto t) {
      float* master = data<float>(call.out, 0);
      launch_flat<kN>(context, "end_local_steps", master, n,
                      EndLocalSteps<decltype(t)>{call.state, a.eps, a.weight_decay,
                                                 data<const float>(call.in, 0), master,
                                                 data<float>(call.out, 1), data<float>(call.out, 2),
                                                 data<decltype(t)>(call.out, 3)});
    });
  });
}

}  // namespace dstrain::DSTRAIN_BACKEND
