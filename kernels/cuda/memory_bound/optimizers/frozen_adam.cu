// Updates with a momentum that travels (1-bit Adam, Tang et al., 2021). They give the bits of
// kernels/cpu/simd/optimizers/frozen_adam.cpp, where v is 0 with m = 0:
//   local_momentum: s = m / ranks,  m = s + (1 - beta1) (grad * grad_scale - s)
//   frozen_adam: p -= lr (m / (sqrt(v) + eps) + weight_decay p)
// Minimum memory traffic: 16 bytes per parameter each, a 16-bit gradient saves 2 and a 16-bit copy costs 2. Where bits
// say whether v is above 0 local_momentum takes 12.13. positive_bits, which makes them, takes 4.13.
#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"
#include "kernels/cuda/memory_bound/optimizers/second_moment.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

constexpr int kN = pack_of(sizeof(float));

template <class G>
struct LocalMomentum {
  const StepState* state;
  float share;
  bool scaled;  // the gradient is multiplied by grad_scale
  const G* grad;
  SecondMoment v;
  float* m;

  __device__ void operator()(int64_t at, int64_t n) const {
    const StepState& s = *state;
    if (s.skip) return;
    const auto rest1 = static_cast<float>(1.0 - s.beta1);
    const float scale = scaled ? s.grad_scale : 1.0f;
    float g[kN], second[kN], moving[kN];
    load(grad, at, n, g);
    v.load_to(at, n, second);
    load(m, at, n, moving);
#pragma unroll
    for (int k = 0; k < kN; ++k) {
      const float old = moving[k] * share;
      moving[k] = second[k] > 0 ? fmaf(rest1, g[k] * scale - old, old) : 0.0f;
    }
    store(moving, m, at, n);
  }
};

// A thread has a byte.
struct PositiveBits {
  const float* x;
  uint8_t* bits;

  __device__ void operator()(int64_t at, int64_t) const {
    unsigned byte = 0;
#pragma unroll
    for (int k = 0; k < 8; ++k) byte |= (x[8 * at + k] > 0 ? 1u : 0u) << k;
    bits[at] = static_cast<uint8_t>(byte);
  }
};

template <class T>
struct FrozenAdam {
  const StepState* state;
  float eps, decay;
  const float *m, *v;
  float* master;
  T* copy;  // may be null

  __device__ void operator()(int64_t at, int64_t n) const {
    const StepState& s = *state;
    if (s.skip) return;
    float p[kN], first[kN], second[kN];
    load(m, at, n, first);
    load(v, at, n, second);
    load(master, at, n, p);
#pragma unroll
    for (int k = 0; k < kN; ++k) {
      const float step = second[k] > 0 ? first[k] / (sqrtf(second[k]) + eps) : 0.0f;
      p[k] = fmaf(-s.lr, fmaf(decay, p[k], step), p[k]);
    }
    store(p, master, at, n);
    if (copy) store(p, copy, at, n);
  }
};

}  // namespace

std::unique_ptr<Kernel> make_local_momentum(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of([context, n = elements(spec.in[0]), dtype = spec.in[0].dtype,
                    attrs = attrs_as<LocalMomentumAttrs>(spec.attrs)](const KernelCall& call) {
    with_type(dtype, [&](auto g) {
      float* m = data<float>(call.out, 0);
      launch_flat<kN>(context, "local_momentum", m, n,
                      LocalMomentum<decltype(g)>{call.state, 1.0f / static_cast<float>(attrs.ranks),
                                                 attrs.scaled, data<const decltype(g)>(call.in, 0),
                                                 second_moment_of(call, 1), m});
    });
  });
}

std::unique_ptr<Kernel> make_positive_bits(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of([context, bytes = elements(spec.out[0])](const KernelCall& call) {
    auto* bits = data<uint8_t>(call.out, 0);
    launch_flat<1>(context, "positive_bits", bits, bytes,
                   PositiveBits{data<const float>(call.in, 0), bits});
  });
}

std::unique_ptr<Kernel> make_frozen_adam(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of([context, n = elements(spec.in[0]), a = attrs_as<FrozenAdamAttrs>(spec.attrs),
                    param = present(spec.out, 1) ? spec.out[1].dtype
                                                 : DType::f32](const KernelCall& call) {
    with_type(param, [&](auto t) {
      float* master = data<float>(call.out, 0);
      launch_flat<kN>(context, "frozen_adam", master, n,
                      FrozenAdam<decltype(t)>{
                          call.state, a.eps, a.weight_decay, data<const float>(call.in, 0),
                          data<const float>(call.in, 1), master, data<decltype(t)>(call.out, 1)});
    });
  });
}

}  // namespace dstrain::DSTRAIN_BACKEND
