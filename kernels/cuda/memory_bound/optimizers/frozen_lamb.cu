// 1-bit Lamb (Li et al., 2021), with the bits and the formulas of kernels/cpu/simd/optimizers/frozen_lamb.cpp.
// Minimum memory traffic per parameter: scaled_momentum 16 bytes, 14 with a 16-bit gradient; frozen_lamb_direction 36;
// frozen_lamb 12, 14 with a 16-bit copy of the weight. momentum_scale reads memory once in a run.
#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"
#include "kernels/cuda/memory_bound/optimizers/second_moment.cuh"
#include "kernels/lamb_rate.h"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

constexpr int kN = pack_of(sizeof(float));

struct LambAverage {
  const StepState* state;
  LambAverageAttrs attrs;
  const double* sums;
  int64_t ranks;
  float* average;

  __device__ void operator()(int64_t at, int64_t n) const {
    if (state->skip) return;
    average[at] = lamb_average(attrs, average[at],
                               lamb_trust(attrs.min_coeff, attrs.max_coeff, sums, ranks, at, n));
  }
};

struct LambFactor {
  const StepState* state;
  LambFactorAttrs attrs;
  LambSlices slices;
  float* factor;

  __device__ void operator()(int64_t at, int64_t) const {
    if (state->skip) return;
    factor[at] = lamb_factor(attrs, factor[at], slices, at);
  }
};

// One block: it reads the momentum in one step of the run alone.
constexpr int kChains = 256;
__global__ void __launch_bounds__(kChains)
    scale_momentum(const StepState* state, const float* m, int64_t n, const float* factor,
                   float* scale) {
  if (state->skip || *factor != 0) return;
  __shared__ double chains[kChains];
  const auto thread = static_cast<int>(threadIdx.x);
  double chain = 0;
  for (int64_t i = thread; i < n; i += kChains) {
    const auto wide = static_cast<double>(m[i]);
    chain += wide * wide;
  }
  chains[thread] = chain;
  for (int half = kChains / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half) chains[thread] += chains[thread + half];
  }
  if (thread == 0) *scale = momentum_scale(chains[0], n);
}

template <class G>
struct ScaledMomentum {
  const StepState* state;
  float share;
  LocalMomentumAttrs attrs;
  const G* grad;
  SecondMoment v;
  const float *m, *scale;
  float* x;

  __device__ void operator()(int64_t at, int64_t n) const {
    const StepState& s = *state;
    if (s.skip) return;
    const auto rest1 = static_cast<float>(1.0 - s.beta1);
    const float grad_scale = attrs.scaled ? s.grad_scale : 1.0f;
    float g[kN], second[kN], moving[kN];
    load(grad, at, n, g);
    v.load_to(at, n, second);
    load(m, at, n, moving);
#pragma unroll
    for (int k = 0; k < kN; ++k) {
      const float old = (attrs.of_scaled ? moving[k] / *scale : moving[k]) * share;
      moving[k] = second[k] > 0 ? fmaf(rest1, g[k] * grad_scale - old, old) * *scale : 0.0f;
    }
    store(moving, x, at, n);
  }
};

struct FrozenLambOperands {
  const StepState* state;
  FrozenLambAttrs attrs;
  const float *v, *master, *scale, *factor;
  float *x, *m, *fresh, *direction;
};

// Updates the pack at `at`. Returns the largest ratio of its elements.
__device__ __forceinline__ float update_pack(const FrozenLambOperands& o, int64_t at, int64_t n) {
  const StepState& s = *o.state;
  float step[kN], to[kN];
  if (s.skip) {
#pragma unroll
    for (int k = 0; k < kN; ++k) step[k] = 0;
    store(step, o.x, at, n);
    store(step, o.direction, at, n);
    return 0;
  }
  const auto rest1 = static_cast<float>(1.0 - s.beta1);
  const auto rest2 = static_cast<float>(1.0 - s.beta2);
  const float scale = *o.scale;
  const bool first = *o.factor == 0;
  float second[kN], p[kN], moving[kN], fresh[kN], largest = 0;
  load(o.v, at, n, second);
  load(o.master, at, n, p);
  load(o.x, at, n, step);
  load(o.m, at, n, moving);
  load(first ? o.v : o.fresh, at, n, fresh);
#pragma unroll
  for (int k = 0; k < kN; ++k) {
    const bool moves = second[k] > 0;
    const float next = moves ? step[k] / scale : 0.0f;
    const float g = moving[k] + (next - moving[k]) / rest1;
    fresh[k] = fmaf(rest2, g * g - fresh[k], fresh[k]);
    const float root = sqrtf(second[k]) + o.attrs.eps;
    const float ratio = moves ? root / (sqrtf(fresh[k]) + o.attrs.eps) : 1.0f;
    if (at + k >= 0 && at + k < n && ratio > largest) largest = ratio;
    moving[k] = next;
    step[k] = moves ? next / root : 0.0f;
    to[k] = fmaf(o.attrs.weight_decay, p[k], step[k]);
  }
  store(moving, o.m, at, n);
  store(fresh, o.fresh, at, n);
  store(step, o.x, at, n);
  store(to, o.direction, at, n);
  return largest;
}

// Packs begin at `first` <= 0. No ratio is negative, so that the order of ratios is that of their bits.
__global__ void __launch_bounds__(kFlatThreads)
    frozen_lamb_packs(FrozenLambOperands o, int64_t first, int64_t packs, int64_t n, float* most) {
  float largest = 0;
  const int64_t apart = static_cast<int64_t>(gridDim.x) * kFlatThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kFlatThreads + threadIdx.x; i < packs;
       i += apart)
    largest = fmaxf(largest, update_pack(o, first + kN * i, n));
  for (int half = 16; half > 0; half /= 2)
    largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, half));
  if (threadIdx.x % 32 == 0) atomicMax(reinterpret_cast<unsigned*>(most), __float_as_uint(largest));
}

template <class T>
struct FrozenLamb {
  const StepState* state;
  const float *direction, *average, *factor;
  float* master;
  T* copy;  // may be null

  __device__ void operator()(int64_t at, int64_t n) const {
    if (state->skip) return;
    const float rate = frozen_lamb_rate(*state, *average, *factor);
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

std::unique_ptr<Kernel> make_lamb_average(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of([context, n = elements(spec.out[0]), sums = elements(spec.in[0]),
                    a = attrs_as<LambAverageAttrs>(spec.attrs)](const KernelCall& call) {
    auto* average = data<float>(call.out, 0);
    launch_flat<1>(
        context, "lamb_average", average, n,
        LambAverage{call.state, a, data<const double>(call.in, 0), sums / (2 * n), average});
  });
}

std::unique_ptr<Kernel> make_momentum_scale(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of([context, n = elements(spec.in[0])](const KernelCall& call) {
    launch(context.stream, "momentum_scale", Grid{1, kChains}, scale_momentum, call.state,
           data<const float>(call.in, 0), n, data<const float>(call.in, 1),
           data<float>(call.out, 0));
  });
}

std::unique_ptr<Kernel> make_scaled_momentum(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of([context, n = elements(spec.in[0]), dtype = spec.in[0].dtype,
                    a = attrs_as<LocalMomentumAttrs>(spec.attrs)](const KernelCall& call) {
    with_type(dtype, [&](auto g) {
      auto* x = data<float>(call.out, 0);
      launch_flat<kN>(context, "scaled_momentum", x, n,
                      ScaledMomentum<decltype(g)>{
                          call.state, 1.0f / static_cast<float>(a.ranks), a,
                          data<const decltype(g)>(call.in, 0), second_moment_of(call, 1),
                          data<const float>(call.in, 2), data<const float>(call.in, 3), x});
    });
  });
}

std::unique_ptr<Kernel> make_frozen_lamb_direction(const KernelSpec& spec,
                                                   const LaunchContext& context) {
  return kernel_of([context, n = elements(spec.in[0]),
                    a = attrs_as<FrozenLambAttrs>(spec.attrs)](const KernelCall& call) {
    constexpr int64_t kMostBlocks = 2048;  // a warp of each raises the largest ratio once
    const FrozenLambOperands o{call.state,
                               a,
                               data<const float>(call.in, 0),
                               data<const float>(call.in, 1),
                               data<const float>(call.in, 2),
                               data<const float>(call.in, 3),
                               data<float>(call.out, 0),
                               data<float>(call.out, 1),
                               data<float>(call.out, 2),
                               data<float>(call.out, 3)};
    const int64_t first = pack_start<kN>(o.m), packs = (n - first + kN - 1) / kN;
    const int64_t blocks = std::min(kMostBlocks, (packs + kFlatThreads - 1) / kFlatThreads);
    if (n > 0)
      launch(context.stream, "frozen_lamb_direction",
             Grid{static_cast<unsigned>(blocks), kFlatThreads}, frozen_lamb_packs, o, first, packs,
             n, data<float>(call.out, 4));
  });
}

std::unique_ptr<Kernel> make_lamb_factor(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of([context, n = elements(spec.out[0]), ratios = elements(spec.in[0]),
                    sums = elements(spec.in[1]),
                    a = attrs_as<LambFactorAttrs>(spec.attrs)](const KernelCall& call) {
    auto* factor = data<float>(call.out, 0);
    const LambSlices slices{data<const float>(call.in, 0), ratios / n,
                            data<const double>(call.in, 1), sums / (2 * n), n};
    launch_flat<1>(context, "lamb_factor", factor, n, LambFactor{call.state, a, slices, factor});
  });
}

std::unique_ptr<Kernel> make_frozen_lamb(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of([context, n = elements(spec.in[0]),
                    param = present(spec.out, 1) ? spec.out[1].dtype
                                                 : DType::f32](const KernelCall& call) {
    with_type(param, [&](auto t) {
      float* master = data<float>(call.out, 0);
      launch_flat<kN>(context, "frozen_lamb", master, n,
                      FrozenLamb<decltype(t)>{
                          call.state, data<const float>(call.in, 0), data<const float>(call.in, 1),
                          data<const float>(call.in, 2), master, data<decltype(t)>(call.out, 1)});
    });
  });
}

}  // namespace dstrain::DSTRAIN_BACKEND
