// activation, gated, softcap, their gradients, add and scale: elementwise and bound by memory.
// Minimum memory traffic, bytes per element of s bytes: activation 2s, activation_grad 3s, add 3s, gated 3s,
// gated_grad 5s, softcap 2s, softcap_grad 3s, scale 2s.
#include "kernels/cpu/memory_bound/kernels.h"
#include "kernels/cpu/memory_bound/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/memory_bound/elementwise.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/memory_bound/functions-inl.h"
#include "kernels/cpu/memory_bound/math-inl.h"
#include "kernels/cpu/memory_bound/pack-inl.h"
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

// A curve's value at x, with its slope there.
struct ValueAndSlope {
  Pack value, slope;
};

struct Relu {
  static SIMD_FN Pack value(Pack x) { return maximum(all(0), x); }
};

struct Gelu {
  static SIMD_FN Pack value(Pack x) { return x / (all(1) + exponential(minus_two_u(x))); }
  static SIMD_FN ValueAndSlope at(Pack x) {
    const Pack e = exponential(all(0) - absolute(minus_two_u(x)));
    const Pack whole = all(1) / (all(1) + e), rest = e * whole;  // sigmoid(|2u|) and 1 minus it
    const Pack sigmoid = select(less(x, all(0)), rest, whole);
    const Pack two_du = all(kTwiceRoot) * fma(x * x, all(3 * kCubic), all(1));
    return {x * sigmoid, fma(x * two_du, whole * rest, sigmoid)};
  }
};

// gelu(x) = x P(x), where P is the probability that a normal value is less than x; its slope is P(x) + x p(x) with the
// density p. P(-|x|) is half of erfc(|x| / sqrt(2)).
struct GeluErf {
  static SIMD_FN Pack value(Pack x) { return x * probability(x, density_ratio(x)); }
  static SIMD_FN ValueAndSlope at(Pack x) {
    constexpr float kPeak = 0.3989422804014327f;  // 1 / sqrt(2 pi)
    const Pack ratio = density_ratio(x), below = probability(x, ratio);
    return {x * below, fma(x, all(kPeak) * ratio, below)};
  }

 private:
  // The density at x over that at 0.
  static SIMD_FN Pack density_ratio(Pack x) { return exponential(all(-0.5f) * x * x); }
  static SIMD_FN Pack probability(Pack x, Pack ratio) {
    constexpr float kSlope = 0.21213203435596426f;  // 0.3 / sqrt(2)
    const Pack t = all(1) / fma(absolute(x), all(kSlope), all(1));
    const Pack tail = half_erfc(ratio, t);
    return select(less(x, all(0)), tail, all(1) - tail);
  }
};

// silu(x) = x / (1 + exp(-x)).
struct Silu {
  static SIMD_FN Pack value(Pack x) { return x / (all(1) + exponential(all(0) - x)); }
  static SIMD_FN ValueAndSlope at(Pack x) {
    const Pack e = exponential(all(0) - absolute(x));
    const Pack whole = all(1) / (all(1) + e), rest = e * whole;  // sigmoid(|x|) and 1 minus it
    const Pack sigmoid = select(less(x, all(0)), rest, whole);
    return {x * sigmoid, fma(x, whole * rest, sigmoid)};
  }
};

// Calls f with the curve of an activation that is smooth.
template <class F>
SIMD_FN void with_curve(Activation activation, const F& f) {
  if (activation == Activation::silu) return f(Silu());
  if (activation == Activation::gelu_erf) return f(GeluErf());
  f(Gelu());
}

void activation_range(DType dtype, Activation activation, const void* x, void* y, int64_t begin,
                      int64_t end) {
  with_type(dtype, [=](auto t) SIMD_INLINE {
    using T = decltype(t);
    const T* from = static_cast<const T*>(x);
    T* to = static_cast<T*>(y);
    const auto apply = [=](auto curve) SIMD_INLINE {
      for_packs(begin, end, [=](int64_t i, auto n) SIMD_INLINE {
        store(curve.value(load(from + i, n)), to + i, n);
      });
    };
    if (activation == Activation::relu)
      apply(Relu());
    else
      with_curve(activation, apply);
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
      with_curve(activation, [=](auto curve) SIMD_INLINE {
        for_packs(begin, end, [=](int64_t i, auto n) SIMD_INLINE {
          store(load(g + i, n) * curve.at(load(r + i, n)).slope, to + i, n);
        });
      });
  });
}

void gated_range(DType dtype, Activation activation, const void* gate, const void* up, void* y,
                 int64_t begin, int64_t end) {
  with_type(dtype, [=](auto t) SIMD_INLINE {
    using T = decltype(t);
    const T *g = static_cast<const T*>(gate), *u = static_cast<const T*>(up);
    T* to = static_cast<T*>(y);
    with_curve(activation, [=](auto curve) SIMD_INLINE {
      for_packs(begin, end, [=](int64_t i, auto n) SIMD_INLINE {
        store(curve.value(load(g + i, n)) * load(u + i, n), to + i, n);
      });
    });
  });
}

// d_gate may be d_y.
void gated_grad_range(DType dtype, Activation activation, const void* d_y, const void* gate,
                      const void* up, void* d_gate, void* d_up, int64_t begin, int64_t end) {
  with_type(dtype, [=](auto t) SIMD_INLINE {
    using T = decltype(t);
    const T *d = static_cast<const T*>(d_y), *g = static_cast<const T*>(gate),
            *u = static_cast<const T*>(up);
    T *to_gate = static_cast<T*>(d_gate), *to_up = static_cast<T*>(d_up);
    with_curve(activation, [=](auto curve) SIMD_INLINE {
      for_packs(begin, end, [=](int64_t i, auto n) SIMD_INLINE {
        const Pack grad = load(d + i, n);
        const ValueAndSlope at = curve.at(load(g + i, n));
        store(grad * load(u + i, n) * at.slope, to_gate + i, n);
        store(grad * at.value, to_up + i, n);
      });
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

void softcap_range(DType dtype, float cap, const void* x, void* y, int64_t begin, int64_t end) {
  const Pack all_cap = all(cap), inverse = all(1 / cap);
  with_type(dtype, [=](auto t) SIMD_INLINE {
    using T = decltype(t);
    const T* from = static_cast<const T*>(x);
    T* to = static_cast<T*>(y);
    for_packs(begin, end, [=](int64_t i, auto n) SIMD_INLINE {
      store(all_cap * hyperbolic_tangent(load(from + i, n) * inverse), to + i, n);
    });
  });
}

// d_x may be d_y. The slope is 1 - tanh^2 = 4 e / (1 + e)^2 with e = exp(-2 |x| / cap).
void softcap_grad_range(DType dtype, float cap, const void* d_y, const void* x, void* d_x,
                        int64_t begin, int64_t end) {
  const Pack minus_two = all(-2 / cap);
  with_type(dtype, [=](auto t) SIMD_INLINE {
    using T = decltype(t);
    const T *g = static_cast<const T*>(d_y), *from = static_cast<const T*>(x);
    T* to = static_cast<T*>(d_x);
    for_packs(begin, end, [=](int64_t i, auto n) SIMD_INLINE {
      const Pack e = exponential(minus_two * absolute(load(from + i, n))), sum = all(1) + e;
      store(load(g + i, n) * (all(4) * e / (sum * sum)), to + i, n);
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
  return kernel_of(
      [threads = spec.threads, n = elements(spec.out[0]), dtype = spec.out[0].dtype,
       kind = attrs_as<ActivationAttrs>(spec.attrs).activation](const KernelCall& call) {
        parallel_ranges(threads, n, kFlatGrain, [&](int64_t begin, int64_t end) {
          DSTRAIN_BEST(gated_range)
          (dtype, kind, data(call.in, 0), data(call.in, 1), data(call.out, 0), begin, end);
        });
      });
}

std::unique_ptr<Kernel> make_gated_grad(const KernelSpec& spec) {
  return kernel_of(
      [threads = spec.threads, n = elements(spec.out[0]), dtype = spec.out[0].dtype,
       kind = attrs_as<ActivationAttrs>(spec.attrs).activation](const KernelCall& call) {
        parallel_ranges(threads, n, kFlatGrain, [&](int64_t begin, int64_t end) {
          DSTRAIN_BEST(gated_grad_range)
          (dtype, kind, data(call.in, 0), data(call.in, 1), data(call.in, 2), data(call.out, 0),
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

std::unique_ptr<Kernel> make_softcap(const KernelSpec& spec) {
  return kernel_of([threads = spec.threads, n = elements(spec.out[0]), dtype = spec.out[0].dtype,
                    cap = attrs_as<SoftcapAttrs>(spec.attrs).cap](const KernelCall& call) {
    parallel_ranges(threads, n, kFlatGrain, [&](int64_t begin, int64_t end) {
      DSTRAIN_BEST(softcap_range)(dtype, cap, data(call.in, 0), data(call.out, 0), begin, end);
    });
  });
}

std::unique_ptr<Kernel> make_softcap_grad(const KernelSpec& spec) {
  return kernel_of([threads = spec.threads, n = elements(spec.out[0]), dtype = spec.out[0].dtype,
                    cap = attrs_as<SoftcapAttrs>(spec.attrs).cap](const KernelCall& call) {
    parallel_ranges(threads, n, kFlatGrain, [&](int64_t begin, int64_t end) {
      DSTRAIN_BEST(softcap_grad_range)
      (dtype, cap, data(call.in, 0), data(call.in, 1), data(call.out, 0), begin, end);
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
