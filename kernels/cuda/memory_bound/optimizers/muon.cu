// muon_momentum and muon, with the bits and the formulas of kernels/cpu/memory_bound/optimizers/muon.cpp. Minimum memory
// traffic per parameter: muon_momentum 16 bytes, 14 with a 16-bit gradient; muon 12, 14 with a 16-bit copy of the
// weight.
#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

constexpr int kN = pack_of(sizeof(float));

template <class G>
struct MuonMomentum {
  const StepState* state;
  float rest;
  const G* grad;
  float *m, *direction;

  __device__ void operator()(int64_t at, int64_t n) const {
    const StepState& s = *state;
    float g[kN], moving[kN], step[kN];
    if (s.skip) {
#pragma unroll
      for (int k = 0; k < kN; ++k) step[k] = 0;
      store(step, direction, at, n);
      return;
    }
    load(grad, at, n, g);
    load(m, at, n, moving);
#pragma unroll
    for (int k = 0; k < kN; ++k) {
      const float slope = g[k] * s.grad_scale;
      moving[k] = fmaf(rest, slope - moving[k], moving[k]);
      step[k] = fmaf(rest, slope - moving[k], moving[k]);
    }
    store(moving, m, at, n);
    store(step, direction, at, n);
  }
};

template <class T>
struct Muon {
  const StepState* state;
  float scale, decay, lr_scale;
  const float* direction;
  float* master;
  T* copy;  // may be null

  __device__ void operator()(int64_t at, int64_t n) const {
    if (state->skip) return;
    float u[kN], p[kN];
    load(direction, at, n, u);
    load(master, at, n, p);
    const float lr = state->lr * lr_scale;
#pragma unroll
    for (int k = 0; k < kN; ++k) p[k] = fmaf(-lr, fmaf(decay, p[k], u[k] * scale), p[k]);
    store(p, master, at, n);
    if (copy) store(p, copy, at, n);
  }
};

}  // namespace

std::unique_ptr<Kernel> make_muon_momentum(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of(
      [context, n = elements(spec.in[0]), grad = spec.in[0].dtype,
       rest = static_cast<float>(1.0 - attrs_as<MuonMomentumAttrs>(spec.attrs).momentum)](
          const KernelCall& call) {
        with_type(grad, [&](auto g) {
          float* m = data<float>(call.out, 0);
          launch_flat<kN>(
              context, "muon_momentum", m, n,
              MuonMomentum<decltype(g)>{call.state, rest, data<const decltype(g)>(call.in, 0), m,
                                        data<float>(call.out, 1)});
        });
      });
}

std::unique_ptr<Kernel> make_muon(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of([context, n = elements(spec.in[0]), a = attrs_as<MuonAttrs>(spec.attrs),
                    param = present(spec.out, 1) ? spec.out[1].dtype
                                                 : DType::f32](const KernelCall& call) {
    with_type(param, [&](auto t) {
      float* master = data<float>(call.out, 0);
      launch_flat<kN>(
          context, "muon", master, n,
          Muon<decltype(t)>{call.state, a.scale, a.weight_decay, a.lr_scale,
                            data<const float>(call.in, 0), master, data<decltype(t)>(call.out, 1)});
    });
  });
}

}  // namespace dstrain::DSTRAIN_BACKEND
