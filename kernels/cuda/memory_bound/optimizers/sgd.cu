// sgd: torch.optim.SGD (momentum, dampening, nesterov, weight decay), and the 16-bit copy of the weight.
//   g = grad * grad_scale + weight_decay p
//   buffer = g at the first update, then momentum buffer + (1 - dampening) g
//   p -= lr (nesterov ? g + momentum buffer : buffer)          (lr g without momentum)
// The first update is the one that runs while state->applied_steps is 0. Does nothing if state->skip is set. Gives
// the bits of kernels/cpu/memory_bound/optimizers/sgd.cpp.
// Minimum memory traffic: 12 bytes per parameter, 20 with momentum, and 2 more for the copy; a 16-bit gradient
// saves 2.
#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

constexpr int kN = pack_of(sizeof(float));

template <class G, class T>
struct Sgd {
  const StepState* state;
  float decay, momentum, rest, lr_scale;
  bool nesterov;
  const G* grad;
  float *master, *buffer;  // buffer may be null
  T* copy;                 // may be null

  __device__ void operator()(int64_t at, int64_t n) const {
    const StepState& s = *state;
    if (s.skip) return;
    float step[kN], p[kN];
    load(grad, at, n, step);
    load(master, at, n, p);
#pragma unroll
    for (int k = 0; k < kN; ++k) step[k] = fmaf(decay, p[k], step[k] * s.grad_scale);
    if (buffer) {
      float moving[kN];
      load(buffer, at, n, moving);
#pragma unroll
      for (int k = 0; k < kN; ++k) {
        const float g = step[k];
        moving[k] = s.applied_steps == 0 ? g : fmaf(momentum, moving[k], rest * g);
        step[k] = nesterov ? fmaf(momentum, moving[k], g) : moving[k];
      }
      store(moving, buffer, at, n);
    }
    const float lr = s.lr * lr_scale;
#pragma unroll
    for (int k = 0; k < kN; ++k) p[k] = fmaf(-lr, step[k], p[k]);
    store(p, master, at, n);
    if (copy) store(p, copy, at, n);
  }
};

}  // namespace

std::unique_ptr<Kernel> make_sgd(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of(
      [context, n = elements(spec.in[0]), a = attrs_as<SgdAttrs>(spec.attrs),
       grad = spec.in[0].dtype,
       param = present(spec.out, 2) ? spec.out[2].dtype : DType::f32](const KernelCall& call) {
        with_type(grad, [&](auto g) {
          with_type(param, [&](auto t) {
            using Body = Sgd<decltype(g), decltype(t)>;
            float* master = data<float>(call.out, 0);
            launch_flat<kN>(context, "sgd", master, n,
                            Body{call.state, a.weight_decay, a.momentum, 1 - a.dampening,
                                 a.lr_scale, a.nesterov, data<const decltype(g)>(call.in, 0),
                                 master, data<float>(call.out, 1), data<decltype(t)>(call.out, 2)});
          });
        });
      });
}

}  // namespace dstrain::DSTRAIN_BACKEND
