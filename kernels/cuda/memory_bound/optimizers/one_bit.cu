// Steps with a frozen second moment: 1-bit Adam, 1-bit Lamb and 0/1 Adam, with the bits and the formulas of
// kernels/cpu/memory_bound/optimizers/one_bit.cpp, and its minimum memory traffic. momentum_scale reads memory once in a run.
#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"
#include "kernels/lamb_rate.h"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

constexpr int kN = pack_of(sizeof(float));

// A second moment's values, or bits that say where they are above 0 (positive_bits); the other pointer is null.
struct SecondMoment {
  const float* values;
  const uint8_t* bits;

  // Sets v[k] to the value of element at + k. Of bits, it is 1 or 0, and 0 outside [0, n).
  __device__ __forceinline__ void load_to(int64_t at, int64_t n, float (&v)[kN]) const {
    if (!bits) return load(values, at, n, v);
#pragma unroll
    for (int k = 0; k < kN; ++k) {
      const int64_t i = at + k;
      v[k] = i >= 0 && i < n && (bits[i / 8] >> (i % 8) & 1) != 0 ? 1.0f : 0.0f;
    }
  }
};

template <class G>
struct LocalMomentum {
  const StepState* state;
  LocalMomentumAttrs attrs;
  const G* grad;
  SecondMoment v;
  const float *m, *scale;  // the scale may be null
  float *x, *sum;          // the sum may be null

  __device__ void operator()(int64_t at, int64_t n) const {
    const StepState& s = *state;
    if (s.skip) return;
    const auto rest1 = static_cast<float>(1.0 - s.beta1);
    const float grad_scale = (attrs.scaled ? s.grad_scale : 1.0f) * attrs.weight;
    const float of_parameter = scale ? *scale : 1.0f;
    float g[kN], second[kN], moving[kN], moved[kN];
    load(grad, at, n, g);
    v.load_to(at, n, second);
    load(m, at, n, moving);
#pragma unroll
    for (int k = 0; k < kN; ++k) {
      const float old = (attrs.of_scaled ? moving[k] / of_parameter : moving[k]) * attrs.share;
      moving[k] = second[k] > 0 ? fmaf(rest1, g[k] * grad_scale - old, old) * of_parameter : 0.0f;
    }
    store(moving, x, at, n);
    if (!sum) return;
    load(sum, at, n, moved);
#pragma unroll
    for (int k = 0; k < kN; ++k) moved[k] = fmaf(s.lr, moving[k], moved[k]);
    store(moved, sum, at, n);
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

// Returns m / (sqrt(v) + eps).
__device__ __forceinline__ float frozen_step(float m, float v, float eps) {
  return v > 0 ? m / (sqrtf(v) + eps) : 0.0f;
}

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
      p[k] = fmaf(-s.lr, fmaf(decay, p[k], frozen_step(first[k], second[k], eps)), p[k]);
    }
    store(p, master, at, n);
    if (copy) store(p, copy, at, n);
  }
};

// Returns what local steps make of a weight.
__device__ __forceinline__ float moved_weight(float p, float v, float sum, float eps, float decay) {
  return fmaf(-decay, p, p - frozen_step(sum, v, eps));
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

struct FrozenLambOperands {
  const StepState* state;
  FrozenStepAttrs attrs;
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

}  // namespace

std::unique_ptr<Kernel> make_local_momentum(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of([context, n = elements(spec.in[0]), dtype = spec.in[0].dtype,
                    bits = spec.in[1].dtype == DType::u8, has_m = present(spec.in, 2),
                    a = attrs_as<LocalMomentumAttrs>(spec.attrs)](const KernelCall& call) {
    const SecondMoment v{bits ? nullptr : data<const float>(call.in, 1),
                         bits ? data<const uint8_t>(call.in, 1) : nullptr};
    with_type(dtype, [&](auto g) {
      auto* x = data<float>(call.out, 0);
      launch_flat<kN>(
          context, "local_momentum", x, n,
          LocalMomentum<decltype(g)>{call.state, a, data<const decltype(g)>(call.in, 0), v,
                                     has_m ? data<const float>(call.in, 2) : x,
                                     data<const float>(call.in, 3), x, data<float>(call.out, 1)});
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
  return kernel_of([context, n = elements(spec.in[0]), a = attrs_as<FrozenStepAttrs>(spec.attrs),
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

std::unique_ptr<Kernel> make_local_weights(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of([context, n = elements(spec.in[0]), dtype = spec.out[0].dtype,
                    a = attrs_as<FrozenStepAttrs>(spec.attrs)](const KernelCall& call) {
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
  return kernel_of([context, n = elements(spec.in[0]), a = attrs_as<FrozenStepAttrs>(spec.attrs),
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

std::unique_ptr<Kernel> make_frozen_lamb_direction(const KernelSpec& spec,
                                                   const LaunchContext& context) {
  return kernel_of([context, n = elements(spec.in[0]),
                    a = attrs_as<FrozenStepAttrs>(spec.attrs)](const KernelCall& call) {
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

}  // namespace dstrain::DSTRAIN_BACKEND
