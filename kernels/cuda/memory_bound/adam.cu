// adam: AdamW (decoupled decay) or Adam with L2 regularisation, and the 16-bit copy of the weight, in one pass.
//   g = grad * grad_scale (+ weight_decay * p where decay is not decoupled)
//   m += (1 - beta1) (g - m),  v += (1 - beta2) (g^2 - v)
//   p -= lr (m / correction1 / (sqrt(v / correction2) + eps) + weight_decay p)
// Does nothing if state->skip is set. Gives the bits of kernels/cpu/simd/optimizers/adam.cpp.
// Minimum memory traffic: 28 bytes per parameter (reads g, p, m, v; writes p, m, v), 30 with the 16-bit copy; a
// 16-bit gradient saves 2.
#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

constexpr int kN = pack_of(sizeof(float));

template <class G, class T>
struct Adam {
  const StepState* state;
  float eps, l2, decay;  // l2 is added to the gradient, decay to the update
  bool beside_muon;
  const G* grad;
  float *master, *m, *v;
  T* copy;  // may be null

  __device__ void operator()(int64_t at, int64_t n) const {
    const StepState& s = *state;
    if (s.skip) return;
    const auto rest1 = static_cast<float>(1.0 - s.beta1);
    const auto rest2 = static_cast<float>(1.0 - s.beta2);
    const float lr = beside_muon ? s.adam_lr : s.lr;
    const float mend1 = 1.0f / s.bias_correction1, mend2 = 1.0f / s.bias_correction2;
    float g[kN], p[kN], first[kN], second[kN];
    load(grad, at, n, g);
    load(master, at, n, p);
    load(m, at, n, first);
    load(v, at, n, second);
#pragma unroll
    for (int k = 0; k < kN; ++k) {
      const float slope = fmaf(l2, p[k], g[k] * s.grad_scale);
      first[k] = fmaf(rest1, slope - first[k], first[k]);
      second[k] = fmaf(rest2, slope * slope - second[k], second[k]);
      const float step = (first[k] * mend1) / (sqrtf(second[k] * mend2) + eps);
      p[k] = fmaf(-lr, fmaf(decay, p[k], step), p[k]);
    }
    store(first, m, at, n);
    store(second, v, at, n);
    store(p, master, at, n);
    if (copy) store(p, copy, at, n);
  }
};

}  // namespace

std::unique_ptr<Kernel> make_adam(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of([context, n = elements(spec.in[0]), a = attrs_as<AdamAttrs>(spec.attrs),
                    grad = spec.in[0].dtype,
                    param = present(spec.out, 3) ? spec.out[3].dtype
                                                 : DType::f32](const KernelCall& call) {
    with_type(grad, [&](auto g) {
      with_type(param, [&](auto t) {
        using Body = Adam<decltype(g), decltype(t)>;
        float* master = data<float>(call.out, 0);
        launch_flat<kN>(context, "adam", master, n,
                        Body{call.state, a.eps, a.decoupled_decay ? 0.0f : a.weight_decay,
                             a.decoupled_decay ? a.weight_decay : 0.0f, a.beside_muon,
                             data<const decltype(g)>(call.in, 0), master, data<float>(call.out, 1),
                             data<float>(call.out, 2), data<decltype(t)>(call.out, 3)});
      });
    });
  });
}

}  // namespace dstrain::DSTRAIN_BACKEND
