// activation, gated, softcap, their gradients, add and scale.
// Minimum memory traffic, bytes per element of s bytes: activation 2s, activation_grad 3s, add 3s, gated 3s,
// gated_grad 5s, softcap 2s, softcap_grad 3s, scale 2s.
#include "kernels/cuda/gelu.cuh"
#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

struct Relu {
  __device__ static float value(float x) { return x < 0.0f ? 0.0f : x; }  // NaN stays
  __device__ static float grad(float d_y, float y) { return y > 0.0f ? d_y : 0.0f; }
};

// silu(x) = x / (1 + exp(-x)).
struct Silu {
  __device__ static float value(float x) { return x / (1.0f + __expf(-x)); }
  __device__ static ValueAndSlope at(float x) {
    const float e = __expf(-fabsf(x));
    const float whole = 1.0f / (1.0f + e), rest = e * whole;  // sigmoid(|x|) and 1 minus it
    const float sigmoid = x < 0.0f ? rest : whole;
    return {x * sigmoid, fmaf(x, whole * rest, sigmoid)};
  }
};

// Calls f with the curve of an activation that is smooth.
template <class F>
void with_curve(Activation activation, const F& f) {
  if (activation == Activation::silu) return f(Silu());
  if (activation == Activation::gelu_erf) return f(GeluErf());
  f(Gelu());
}

template <class T, class Curve, int N>
struct ActivationOf {
  const T* x;
  T* y;
  __device__ void operator()(int64_t at, int64_t n) const {
    float v[N];
    load(x, at, n, v);
#pragma unroll
    for (int k = 0; k < N; ++k) v[k] = Curve::value(v[k]);
    store(v, y, at, n);
  }
};

// d_x may be d_y.
template <class T, class Curve, int N>
struct ActivationGradOf {
  const T *d_y, *ref;
  T* d_x;
  __device__ void operator()(int64_t at, int64_t n) const {
    float g[N], r[N];
    load(d_y, at, n, g);
    load(ref, at, n, r);
#pragma unroll
    for (int k = 0; k < N; ++k) g[k] = Curve::grad(g[k], r[k]);
    store(g, d_x, at, n);
  }
};

template <class T, int N>
struct Add {
  const T *a, *b;
  T* y;
  __device__ void operator()(int64_t at, int64_t n) const {
    float p[N], q[N];
    load(a, at, n, p);
    load(b, at, n, q);
#pragma unroll
    for (int k = 0; k < N; ++k) p[k] += q[k];
    store(p, y, at, n);
  }
};

// y may be x.
template <class T, int N>
struct ScaleBy {
  float factor;
  const T* x;
  T* y;
  __device__ void operator()(int64_t at, int64_t n) const {
    float v[N];
    load(x, at, n, v);
#pragma unroll
    for (int k = 0; k < N; ++k) v[k] *= factor;
    store(v, y, at, n);
  }
};

template <class T, int N>
struct SoftcapOf {
  float cap;
  const T* x;
  T* y;
  __device__ void operator()(int64_t at, int64_t n) const {
    float v[N];
    load(x, at, n, v);
#pragma unroll
    for (int k = 0; k < N; ++k) v[k] = cap * tanhf(v[k] / cap);
    store(v, y, at, n);
  }
};

// d_x may be d_y. The slope is 1 - tanh^2 = 4 e / (1 + e)^2 with e = exp(-2 |x| / cap).
template <class T, int N>
struct SoftcapGradOf {
  float cap;
  const T *d_y, *x;
  T* d_x;
  __device__ void operator()(int64_t at, int64_t n) const {
    float g[N], v[N];
    load(d_y, at, n, g);
    load(x, at, n, v);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const float e = __expf(-2.0f * fabsf(v[k]) / cap), sum = 1.0f + e;
      g[k] *= 4.0f * e / (sum * sum);
    }
    store(g, d_x, at, n);
  }
};

// curve(gate) * up.
template <class T, class Curve, int N>
struct GatedOf {
  const T *gate, *up;
  T* y;
  __device__ void operator()(int64_t at, int64_t n) const {
    float g[N], u[N];
    load(gate, at, n, g);
    load(up, at, n, u);
#pragma unroll
    for (int k = 0; k < N; ++k) g[k] = Curve::value(g[k]) * u[k];
    store(g, y, at, n);
  }
};

// d_gate may be d_y.
template <class T, class Curve, int N>
struct GatedGradOf {
  const T *d_y, *gate, *up;
  T *d_gate, *d_up;
  __device__ void operator()(int64_t at, int64_t n) const {
    float d[N], g[N], u[N];
    load(d_y, at, n, d);
    load(gate, at, n, g);
    load(up, at, n, u);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const ValueAndSlope gate_at = Curve::at(g[k]);
      g[k] = d[k] * u[k] * gate_at.slope;
      u[k] = d[k] * gate_at.value;
    }
    store(g, d_gate, at, n);
    store(u, d_up, at, n);
  }
};

}  // namespace

std::unique_ptr<Kernel> make_activation(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of(
      [context, n = elements(spec.out[0]), dtype = spec.out[0].dtype,
       kind = attrs_as<ActivationAttrs>(spec.attrs).activation](const KernelCall& call) {
        with_type(dtype, [&](auto t) {
          using T = decltype(t);
          constexpr int kN = pack_of(sizeof(T));
          const T* x = data<const T>(call.in, 0);
          T* y = data<T>(call.out, 0);
          if (kind == Activation::relu)
            launch_flat<kN>(context, "relu", x, n, ActivationOf<T, Relu, kN>{x, y});
          else if (kind == Activation::gelu_erf)
            launch_flat<kN>(context, "gelu_erf", x, n, ActivationOf<T, GeluErf, kN>{x, y});
          else
            launch_flat<kN>(context, "gelu", x, n, ActivationOf<T, Gelu, kN>{x, y});
        });
      });
}

std::unique_ptr<Kernel> make_activation_grad(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of([context, n = elements(spec.out[0]), dtype = spec.out[0].dtype,
                    kind =
                        attrs_as<ActivationAttrs>(spec.attrs).activation](const KernelCall& call) {
    with_type(dtype, [&](auto t) {
      using T = decltype(t);
      constexpr int kN = pack_of(sizeof(T));
      const T *d_y = data<const T>(call.in, 0), *ref = data<const T>(call.in, 1);
      T* d_x = data<T>(call.out, 0);
      if (kind == Activation::relu)
        launch_flat<kN>(context, "relu_grad", d_y, n, ActivationGradOf<T, Relu, kN>{d_y, ref, d_x});
      else if (kind == Activation::gelu_erf)
        launch_flat<kN>(context, "gelu_erf_grad", d_y, n,
                        ActivationGradOf<T, GeluErf, kN>{d_y, ref, d_x});
      else
        launch_flat<kN>(context, "gelu_grad", d_y, n, ActivationGradOf<T, Gelu, kN>{d_y, ref, d_x});
    });
  });
}

std::unique_ptr<Kernel> make_gated(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of(
      [context, n = elements(spec.out[0]), dtype = spec.out[0].dtype,
       kind = attrs_as<ActivationAttrs>(spec.attrs).activation](const KernelCall& call) {
        with_type(dtype, [&](auto t) {
          using T = decltype(t);
          constexpr int kN = pack_of(sizeof(T));
          const T *gate = data<const T>(call.in, 0), *up = data<const T>(call.in, 1);
          with_curve(kind, [&](auto curve) {
            launch_flat<kN>(context, "gated", gate, n,
                            GatedOf<T, decltype(curve), kN>{gate, up, data<T>(call.out, 0)});
          });
        });
      });
}

std::unique_ptr<Kernel> make_gated_grad(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of(
      [context, n = elements(spec.out[0]), dtype = spec.out[0].dtype,
       kind = attrs_as<ActivationAttrs>(spec.attrs).activation](const KernelCall& call) {
        with_type(dtype, [&](auto t) {
          using T = decltype(t);
          constexpr int kN = pack_of(sizeof(T));
          const T *d_y = data<const T>(call.in, 0), *gate = data<const T>(call.in, 1),
                  *up = data<const T>(call.in, 2);
          with_curve(kind, [&](auto curve) {
            launch_flat<kN>(context, "gated_grad", d_y, n,
                            GatedGradOf<T, decltype(curve), kN>{d_y, gate, up, data<T>(call.out, 0),
                                                                data<T>(call.out, 1)});
          });
        });
      });
}

std::unique_ptr<Kernel> make_add(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of(
      [context, n = elements(spec.out[0]), dtype = spec.out[0].dtype](const KernelCall& call) {
        with_type(dtype, [&](auto t) {
          using T = decltype(t);
          constexpr int kN = pack_of(sizeof(T));
          const T *a = data<const T>(call.in, 0), *b = data<const T>(call.in, 1);
          launch_flat<kN>(context, "add", a, n, Add<T, kN>{a, b, data<T>(call.out, 0)});
        });
      });
}

std::unique_ptr<Kernel> make_softcap(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of([context, n = elements(spec.out[0]), dtype = spec.out[0].dtype,
                    cap = attrs_as<SoftcapAttrs>(spec.attrs).cap](const KernelCall& call) {
    with_type(dtype, [&](auto t) {
      using T = decltype(t);
      constexpr int kN = pack_of(sizeof(T));
      const T* x = data<const T>(call.in, 0);
      launch_flat<kN>(context, "softcap", x, n, SoftcapOf<T, kN>{cap, x, data<T>(call.out, 0)});
    });
  });
}

std::unique_ptr<Kernel> make_softcap_grad(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of([context, n = elements(spec.out[0]), dtype = spec.out[0].dtype,
                    cap = attrs_as<SoftcapAttrs>(spec.attrs).cap](const KernelCall& call) {
    with_type(dtype, [&](auto t) {
      using T = decltype(t);
      constexpr int kN = pack_of(sizeof(T));
      const T *d_y = data<const T>(call.in, 0), *x = data<const T>(call.in, 1);
      launch_flat<kN>(context, "softcap_grad", d_y, n,
                      SoftcapGradOf<T, kN>{cap, d_y, x, data<T>(call.out, 0)});
    });
  });
}

std::unique_ptr<Kernel> make_scale(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of([context, n = elements(spec.out[0]), dtype = spec.out[0].dtype,
                    factor = attrs_as<ScaleAttrs>(spec.attrs).factor](const KernelCall& call) {
    with_type(dtype, [&](auto t) {
      using T = decltype(t);
      constexpr int kN = pack_of(sizeof(T));
      const T* x = data<const T>(call.in, 0);
      launch_flat<kN>(context, "scale", x, n, ScaleBy<T, kN>{factor, x, data<T>(call.out, 0)});
    });
  });
}

}  // namespace dstrain::DSTRAIN_BACKEND
