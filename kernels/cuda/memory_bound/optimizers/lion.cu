// lion: the sign of a blend of momentum and gradient (Chen et al., 2023), and the 16-bit copy of the weight.
//   g = grad * grad_scale,  c = beta1 m + (1 - beta1) g
//   p -= lr (sign(c) + weight_decay p)          (sign(0) = 0)
//   m = beta2 m + (1 - beta2) g
// Does nothing if state->skip is set. Gives the bits of kernels/cpu/memory_bound/optimizers/lion.cpp.
// Minimum memory traffic: 20 bytes per parameter, 22 with the 16-bit copy; a 16-bit gradient saves 2.
#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"
#include "kernels/cuda/memory_bound/optimizers/lion.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

constexpr int kN = pack_of(sizeof(float));

template <class G, class T>
struct Lion {
  const StepState* state;
  float decay, lr_scale;
  const G* grad;
  float *master, *m;
  T* copy;  // may be null

  __device__ void operator()(int64_t at, int64_t n) const {
    const StepState& s = *state;
    if (s.skip) return;
    float g[kN], p[kN], moving[kN];
    load(grad, at, n, g);
    load(master, at, n, p);
    load(m, at, n, moving);
    update_lion(s, decay, lr_scale, g, p, moving);
    store(moving, m, at, n);
    store(p, master, at, n);
    if (copy) store(p, copy, at, n);
  }
};

}  // namespace

std::unique_ptr<Kernel> make_lion(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of(
      [context, n = elements(spec.in[0]), a = attrs_as<LionAttrs>(spec.attrs),
       grad = spec.in[0].dtype,
       param = present(spec.out, 2) ? spec.out[2].dtype : DType::f32](const KernelCall& call) {
        with_type(grad, [&](auto g) {
          with_type(param, [&](auto t) {
            using Body = Lion<decltype(g), decltype(t)>;
            float* master = data<float>(call.out, 0);
            launch_flat<kN>(
                context, "lion", master, n,
                Body{call.state, a.weight_decay, a.lr_scale, data<const decltype(g)>(call.in, 0),
                     master, data<float>(call.out, 1), data<decltype(t)>(call.out, 2)});
          });
        });
      });
}

}  // namespace dstrain::DSTRAIN_BACKEND
