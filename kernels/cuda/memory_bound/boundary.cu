// cast, accumulate and round_wire: conversions of flat ranges. Values are rounded to nearest, ties to even.
// accumulate adds in f32 and rounds each sum once.
// Minimum memory traffic, bytes per element: cast s_in + s_out; accumulate the same, and s_out more when it adds;
// round_wire 8.
#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

// y = x, or y += x.
template <class S, class T>
struct Convert {
  static constexpr int kN = pack_of(sizeof(S) > sizeof(T) ? sizeof(S) : sizeof(T));
  const S* x;
  T* y;
  bool add;
  __device__ void operator()(int64_t at, int64_t n) const {
    float v[kN];
    load(x, at, n, v);
    if (add) {
      float before[kN];
      load(y, at, n, before);
#pragma unroll
      for (int k = 0; k < kN; ++k) v[k] = before[k] + v[k];
    }
    store(v, y, at, n);
  }
};

template <class T>
struct RoundWire {
  static constexpr int kN = 4;
  float* y;
  __device__ void operator()(int64_t at, int64_t n) const {
    float v[kN];
    load(y, at, n, v);
#pragma unroll
    for (int k = 0; k < kN; ++k) v[k] = widen(narrow<T>(v[k]));
    store(v, y, at, n);
  }
};

// Returns the kernel of cast or of accumulate; only the latter may add.
std::unique_ptr<Kernel> make_convert(const KernelSpec& spec, const LaunchContext& context,
                                     const char* name, bool may_add) {
  return kernel_of([=, n = elements(spec.out[0]), from = spec.in[0].dtype,
                    to = spec.out[0].dtype](const KernelCall& call) {
    with_type(from, [&](auto s) {
      with_type(to, [&](auto t) {
        using Body = Convert<decltype(s), decltype(t)>;
        const auto* x = data<const decltype(s)>(call.in, 0);
        launch_flat<Body::kN>(context, name, x, n,
                              Body{x, data<decltype(t)>(call.out, 0), may_add && call.accumulate});
      });
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> make_cast(const KernelSpec& spec, const LaunchContext& context) {
  return make_convert(spec, context, "cast", false);
}

std::unique_ptr<Kernel> make_accumulate(const KernelSpec& spec, const LaunchContext& context) {
  return make_convert(spec, context, "accumulate", true);
}

std::unique_ptr<Kernel> make_round_wire(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of([context, n = elements(spec.out[0]),
                    wire = attrs_as<WireAttrs>(spec.attrs).wire](const KernelCall& call) {
    if (wire == DType::f32) return;
    with_type(wire, [&](auto t) {
      using T = decltype(t);
      float* y = data<float>(call.out, 0);
      launch_flat<RoundWire<T>::kN>(context, "round_wire", y, n, RoundWire<T>{y});
    });
  });
}

}  // namespace dstrain::DSTRAIN_BACKEND
