// activation, gated, their gradients, add and scale: elementwise and bound by memory.
// Minimum memory traffic, bytes per element of s bytes: activation 2s, activation_grad 3s, add 3s, gated 3s,
// gated_grad 5s, scale 2s.
#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd/elementwise.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd/math-inl.h"
#include "kernels/cpu/simd/pack-inl.h"
#include "runtime/core/isa/best_variant.h"

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

// gelu(x) = x (1 + tanh(u)) / 2 = x / (1 + exp(-2 u)). Computes -2 u and its slope -2 u'.
constexpr float kTwiceRoot = 1.5957691216057308f;  // 2 sqrt(2 / pi)
constexpr float kCubic = 0.044715f;

SIMD_FN Pack minus_two_u(Pack x) {
  return all(-kTwiceRoot) * x * fma(x * x, all(kCubic), all(1));
}

SIMD_FN Pack gelu(Pack x) {
  return x / (all(1) + exponential(minus_two_u(x)));
}

SIMD_FN Pack gelu_slope(Pack x) {
  const Pack e = exponential(all(0) - absolute(minus_two_u(x)));
  const Pack whole = all(1) / (all(1) + e), rest = e * whole;  // sigmoid(|2u|) and 1 minus it
  const Pack sigmoid = select(less(x, all(0)), rest, whole);
  const Pack two_du = all(kTwiceRoot) * fma(x * x, all(3 * kCubic), all(1));
  return fma(x * two_du, whole * rest, sigmoid);
}

// silu(x) = x / (1 + exp(-x)).
SIMD_FN Pack silu(Pack x) {
  return x / (all(1) + exponential(all(0) - x));
}

struct SiluGrad {
  Pack value, slope;
};
SIMD_FN SiluGrad silu_grad(Pack x) {
  const Pack e = exponential(all(0) - absolute(x));
  const Pack whole = all(1) / (all(1) + e), rest = e * whole;  // sigmoid(|x|) and 1 minus it
  const Pack sigmoid = select(less(x, all(0)), rest, whole);
  return {x * sigmoid, fma(x, whole * rest, sigmoid)};
}

void activation_range(DType dtype, Activation activation, const void* x, void* y, int64_t begin,
                      int64_t end) {
  with_type(dtype, [=](auto t) SIMD_INLINE {
    using T = decltype(t);
    const T* from = static_cast<const T*>(x);
    T* to = static_cast<T*>(y);
    if (activation == Activation::relu)
      for_packs(begin, end, [=](int64_t i, auto n) SIMD_INLINE {
        store(maximum(all(0), load(from + i, n)), to + i, n);
      });
    else
      for_packs(begin, end,
                [=](int64_t i, auto n) SIMD_INLINE { store(gelu(load(from + i, n)), to + i, n); });
  });
}

void activation_grad_range(DType dtype, Activation activation, const void* d_y, const void* ref,
                           void* d_x, int64_t begin, int64_t end) {
  with_type(dtype, [=](auto t) SIMD_INLINE {
    using T = decltype(t);
    const T *g = static_cast<const T*>(d_y), *r = static_cast<const T*>(ref);
    T* to = static_cast<T*>(d_x);
    if (activation == Activation::relu)
      for_packs(begin, end, [=](int64_t i, auto n) SIMD_INLINE {
        store(select_or_zero(greater(load(r + i, n), all(0)), load(g + i, n)), to + i, n);
      });
    else
      for_packs(begin, end, [=](int64_t i, auto n) SIMD_INLINE {
        store(load(g + i, n) * gelu_slope(load(r + i, n)), to + i, n);
      });
  });
}

void gated_range(DType dtype, const void* gate, const void* up, void* y, int64_t begin,
                 int64_t end) {
  with_type(dtype, [=](auto t) SIMD_INLINE {
    using T = decltype(t);
    const T *g = static_cast<const T*>(gate), *u = static_cast<const T*>(up);
    T* to = static_cast<T*>(y);
    for_packs(begin, end, [=](int64_t i, auto n) SIMD_INLINE {
      store(silu(load(g + i, n)) * load(u + i, n), to + i, n);
    });
  });
}

// d_gate may be d_y.
void gated_grad_range(DType dtype, const void* d_y, const void* gate, const void* up, void* d_gate,
                      void* d_up, int64_t begin, int64_t end) {
  with_type(dtype, [=](auto t) SIMD_INLINE {
    using T = decltype(t);
    const T *d = static_cast<const T*>(d_y), *g = static_cast<const T*>(gate),
            *u = static_cast<const T*>(up);
    T *to_gate = static_cast<T*>(d_gate), *to_up = static_cast<T*>(d_up);
    for_packs(begin, end, [=](int64_t i, auto n) SIMD_INLINE {
      const Pack grad = load(d + i, n);
      const SiluGrad at = silu_grad(load(g + i, n));
      store(grad * load(u + i, n) * at.slope, to_gate + i, n);
      store(grad * at.value, to_up + i, n);
    });
  });
}

void add_range(DType dtype, const void* a, const void* b, void* y, int64_t begin, int64_t end) {
  with_type(dtype, [=](auto t) SIMD_INLINE {
    using T = decltype(t);
    const T *p = static_cast<const T*>(a), *q = static_cast<const T*>(b);
    T* to = static_cast<T*>(y);
    for_packs(begin, end, [=](int64_t i, auto n) SIMD_INLINE {
      store(load(p + i, n) + load(q + i, n), to + i, n);
    });
  });
}

// y may be x.
void scale_range(DType dtype, float factor, const void* x, void* y, int64_t begin, int64_t end) {
  const Pack all_factor = all(factor);
  with_type(dtype, [=](auto t) SIMD_INLINE {
    using T = decltype(t);
    const T* from = static_cast<const T*>(x);
    T* to = static_cast<T*>(y);
    for_packs(begin, end, [=](int64_t i, auto n) SIMD_INLINE {
      store(load(from + i, n) * all_factor, to + i, n);
    });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain::simd {

std::unique_ptr<Kernel> make_activation(const KernelSpec& spec) {
  return kernel_of(
      [threads = spec.threads, n = elements(spec.out[0]), dtype = spec.out[0].dtype,
       kind = attrs_as<ActivationAttrs>(spec.attrs).activation](const KernelCall& call) {
        parallel_ranges(threads, n, kFlatGrain, [&](int64_t begin, int64_t end) {
          DSTRAIN_BEST(activation_range)
          (dtype, kind, data(call.in, 0), data(call.out, 0), begin, end);
        });
      });
}

std::unique_ptr<Kernel> make_activation_grad(const KernelSpec& spec) {
  return kernel_of(
      [threads = spec.threads, n = elements(spec.out[0]), dtype = spec.out[0].dtype,
       kind = attrs_as<ActivationAttrs>(spec.attrs).activation](const KernelCall& call) {
        parallel_ranges(threads, n, kFlatGrain, [&](int64_t begin, int64_t end) {
          DSTRAIN_BEST(activation_grad_range)
          (dtype, kind, data(call.in, 0), data(call.in, 1), data(call.out, 0), begin, end);
        });
      });
}

std::unique_ptr<Kernel> make_gated(const KernelSpec& spec) {
  return kernel_of([threads = spec.threads, n = elements(spec.out[0]),
                    dtype = spec.out[0].dtype](const KernelCall& call) {
    parallel_ranges(threads, n, kFlatGrain, [&](int64_t begin, int64_t end) {
      DSTRAIN_BEST(gated_range)
      (dtype, data(call.in, 0), data(call.in, 1), data(call.out, 0), begin, end);
    });
  });
}

std::unique_ptr<Kernel> make_gated_grad(const KernelSpec& spec) {
  return kernel_of([threads = spec.threads, n = elements(spec.out[0]),
                    dtype = spec.out[0].dtype](const KernelCall& call) {
    parallel_ranges(threads, n, kFlatGrain, [&](int64_t begin, int64_t end) {
      DSTRAIN_BEST(gated_grad_range)
      (dtype, data(call.in, 0), data(call.in, 1), data(call.in, 2), data(call.out, 0),
       data(call.out, 1), begin, end);
    });
  });
}

std::unique_ptr<Kernel> make_add(const KernelSpec& spec) {
  return kernel_of([threads = spec.threads, n = elements(spec.out[0]),
                    dtype = spec.out[0].dtype](const KernelCall& call) {
    parallel_ranges(threads, n, kFlatGrain, [&](int64_t begin, int64_t end) {
      DSTRAIN_BEST(add_range)
      (dtype, data(call.in, 0), data(call.in, 1), data(call.out, 0), begin, end);
    });
  });
}

std::unique_ptr<Kernel> make_scale(const KernelSpec& spec) {
  return kernel_of([threads = spec.threads, n = elements(spec.out[0]), dtype = spec.out[0].dtype,
                    factor = attrs_as<ScaleAttrs>(spec.attrs).factor](const KernelCall& call) {
    parallel_ranges(threads, n, kFlatGrain, [&](int64_t begin, int64_t end) {
      DSTRAIN_BEST(scale_range)
      (dtype, factor, data(call.in, 0), data(call.out, 0), begin, end);
    });
  });
}

}  // namespace dstrain::simd
#endif
