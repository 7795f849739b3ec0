// adam of 16-bit weights that are their own masters, with moments in f32 or in the type of the weights. Both are rounded
// to nearest when they are stored. Gives the bits of kernels/cpu/memory_bound/optimizers/adam.cpp.
// Minimum memory traffic: 24 bytes per parameter (reads g, p, m, v; writes p, m, v), 22 with a 16-bit gradient, 14 with
// 16-bit moments too.
#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"
#include "kernels/cuda/memory_bound/optimizers/adam.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

constexpr int kN = pack_of(sizeof(float));

// T: the type of the weights, S: that of the moments.
template <class G, class T, class S>
struct AdamOfOwnMasters {
  AdamRule rule;
  float weight_decay, lr_scale;
  const G* grad;
  T* weights;
  S *m, *v;

  __device__ void operator()(int64_t at, int64_t n) const {
    if (rule.state->skip) return;
    AdamValues<kN> x;
    load(grad, at, n, x.grad);
    load(weights, at, n, x.master);
    load(m, at, n, x.m);
    load(v, at, n, x.v);
    update(rule, weight_decay, lr_scale, x);
    store(x.m, m, at, n);
    store(x.v, v, at, n);
    store(x.master, weights, at, n);
  }
};

// Calls f(T{}) with float, or with Narrow where `dtype` is not f32.
template <class Narrow, class F>
void with_float_or(DType dtype, const F& f) {
  if (dtype == DType::f32)
    f(float{});
  else
    f(Narrow{});
}

}  // namespace

std::unique_ptr<Kernel> make_adam_of_own_masters(const KernelSpec& spec,
                                                 const LaunchContext& context) {
  return kernel_of([context, n = elements(spec.in[0]), attrs = attrs_as<AdamAttrs>(spec.attrs),
                    grad = spec.in[0].dtype, weights = spec.out[0].dtype,
                    moments = spec.out[1].dtype](const KernelCall& call) {
    const AdamRule rule{call.state, attrs.eps, attrs.decoupled_decay, attrs.beside_muon};
    const auto run = [&](auto t) {
      using T = decltype(t);
      with_float_or<T>(grad, [&](auto g) {
        with_float_or<T>(moments, [&](auto s) {
          using G = decltype(g);
          using S = decltype(s);
          T* const to = data<T>(call.out, 0);
          launch_flat<kN>(context, "adam", to, n,
                          AdamOfOwnMasters<G, T, S>{rule, attrs.weight_decay, attrs.lr_scale,
                                                    data<const G>(call.in, 0), to,
                                                    data<S>(call.out, 1), data<S>(call.out, 2)});
        });
      });
    };
    if (weights == DType::bf16)
      run(bf16{});
    else
      run(f16{});
  });
}

}  // namespace dstrain::DSTRAIN_BACKEND
