// adagrad: torch.optim.Adagrad without decay of its learning rate, and the 16-bit copy of the weight.
//   g = grad * grad_scale + weight_decay p,  sum += g^2,  p -= lr g / (sqrt(sum) + eps)
// Does nothing if state->skip is set. Gives the bits of kernels/cpu/memory_bound/optimizers/adagrad.cpp.
// Minimum memory traffic: 20 bytes per parameter, 22 with the 16-bit copy; a 16-bit gradient saves 2.
#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

constexpr int kN = pack_of(sizeof(float));

template <class G, class T>
struct Adagrad {
  const StepState* state;
  float eps, decay, lr_scale;
  const G* grad;
  float *master, *sum;
  T* copy;  // may be null

  __device__ void operator()(int64_t at, int64_t n) const {
    const StepState& s = *state;
    if (s.skip) return;
    float g[kN], p[kN], total[kN];
    load(grad, at, n, g);
    load(master, at, n, p);
    load(sum, at, n, total);
    const float lr = s.lr * lr_scale;
#pragma unroll
    for (int k = 0; k < kN; ++k) {
      const float slope = fmaf(decay, p[k], g[k] * s.grad_scale);
      total[k] = fmaf(slope, slope, total[k]);
      p[k] = fmaf(-lr, slope / (sqrtf(total[k]) + eps), p[k]);
    }
    store(total, sum, at, n);
    store(p, master, at, n);
    if (copy) store(p, copy, at, n);
  }
};

}  // namespace

std::unique_ptr<Kernel> make_adagrad(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of([context, n = elements(spec.in[0]), a = attrs_as<AdagradAttrs>(spec.attrs),
                    grad = spec.in[0].dtype,
                    param = present(spec.out, 2) ? spec.out[2].dtype
                                                 : DType::f32](const KernelCall& call) {
    with_type(grad, [&](auto g) {
      with_type(param, [&](auto t) {
        using Body = Adagrad<decltype(g), decltype(t)>;
        float* master = data<float>(call.out, 0);
        launch_flat<kN>(
            context, "adagrad", master, n,
            Body{call.state, a.eps, a.weight_decay, a.lr_scale, data<const decltype(g)>(call.in, 0),
                 master, data<float>(call.out, 1), data<decltype(t)>(call.out, 2)});
      });
    });
  });
}

}  // namespace dstrain::DSTRAIN_BACKEND
