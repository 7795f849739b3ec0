// layer_norm: y = (x - mean) * rstd * weight + bias. The variance is computed from x - mean in a second pass, so it
// stays accurate where the mean is large.
// Minimum memory traffic: 2 s R C bytes, as a row of up to 16384 elements stays in registers between its passes.
#include "kernels/cuda/memory_bound/memory_bound.cuh"
#include "kernels/cuda/memory_bound/rows.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

// Whether all operands of a row are loaded before the first is used: 16-bit ones fit in registers.
template <class T, int kHeld, bool kAligned>
constexpr bool kEarly = kAligned&& kHeld > 0 && sizeof(T) == 2;

// SASS <?*16, 4, true>: threads 128, blocks 6, loads 8
template <class T, int kHeld, bool kAligned>
__global__ void __launch_bounds__(kRowThreads, 1)
    layer_norm_kernel(const T* x, const T* weight, const T* bias, T* y, float* mean, float* rstd,
                      int64_t rows, int64_t c, float eps) {
  const int64_t r = row_of_group();
  if (r >= rows) return;
  const T* row = x + r * c;
  const float inverse = 1.0f / static_cast<float>(c);
  constexpr int kPacks = kHeld > 0 ? kHeld : 1;
  RowPack<kAligned, T> held[kPacks], w[kPacks], b[kPacks];
  load_row<kHeld>(held, row, c);
  if constexpr (kEarly<T, kHeld, kAligned>) {
    load_row<kHeld>(w, weight, c);
    load_row<kHeld>(b, bias, c);
  }
  float sum = 0;
  for_row_packs<kHeld>(c, [&](int k, int64_t at) {
    float v[kRowPack];
    if (kHeld == 0) held[k].load(row, at, c);
    held[k].widen_to(v);
#pragma unroll
    for (int e = 0; e < kRowPack; ++e) sum += v[e];
  });
  const float centre = group_sum(sum) * inverse;
  float square = 0;
  for_row_packs<kHeld>(c, [&](int k, int64_t at) {
    float v[kRowPack];
    if (kHeld == 0) held[k].load(row, at, c);
    held[k].widen_to(v);
#pragma unroll
    for (int e = 0; e < kRowPack; ++e) {
      const float d = v[e] - centre;
      if (kAligned || at + e < c) square = fmaf(d, d, square);
    }
  });
  const float scale = 1.0f / sqrtf(group_sum(square) * inverse + eps);
  for_row_packs<kHeld>(c, [&](int k, int64_t at) {
    float v[kRowPack], scales[kRowPack], shifts[kRowPack];
    if (kHeld == 0) held[k].load(row, at, c);
    if constexpr (!kEarly<T, kHeld, kAligned>) {
      w[k].load(weight, at, c);
      b[k].load(bias, at, c);
    }
    held[k].widen_to(v);
    w[k].widen_to(scales);
    b[k].widen_to(shifts);
#pragma unroll
    for (int e = 0; e < kRowPack; ++e) v[e] = fmaf((v[e] - centre) * scale, scales[e], shifts[e]);
    store_pack<kAligned>(v, y + r * c, at, c);
  });
  if (threadIdx.x == 0) {
    mean[r] = centre;
    rstd[r] = scale;
  }
}

struct NormGrad {
  const void *d_y, *x, *weight, *add;  // add may be null
  const float *mean, *rstd;
  void* d_x;
};

// d_x = rstd * (g - mean(g) - xhat * mean(g * xhat)) + add, with g = d_y * weight.
// SASS <?*16, 4, true>: threads 128, blocks 4, loads 12
template <class T, int kHeld, bool kAligned>
__global__ void __launch_bounds__(kRowThreads, 1)
    input_grad_kernel(NormGrad o, int64_t rows, int64_t c) {
  const int64_t r = row_of_group();
  if (r >= rows) return;
  const T *d_y = static_cast<const T*>(o.d_y) + r * c, *x = static_cast<const T*>(o.x) + r * c;
  const T *weight = static_cast<const T*>(o.weight),
          *add = o.add ? static_cast<const T*>(o.add) + r * c : nullptr;
  constexpr int kPacks = kHeld > 0 ? kHeld : 1;
  RowPack<kAligned, T> d_ys[kPacks], xs[kPacks], w[kPacks], before[kPacks];
  load_row<kHeld>(d_ys, d_y, c);
  load_row<kHeld>(xs, x, c);
  if constexpr (kEarly<T, kHeld, kAligned>) {
    load_row<kHeld>(w, weight, c);
    if (add) load_row<kHeld>(before, add, c);
  }
  const float centre = o.mean[r], scale = o.rstd[r], inverse = 1.0f / static_cast<float>(c);
  // g and xhat of a pack; both are computed twice, which costs less than registers for them.
  const auto read = [&](int k, int64_t at, float(&g)[kRowPack], float(&normal)[kRowPack]) {
    if (kHeld == 0) {
      d_ys[k].load(d_y, at, c);
      xs[k].load(x, at, c);
    }
    if constexpr (!kEarly<T, kHeld, kAligned>) w[k].load(weight, at, c);
    float scales[kRowPack];
    d_ys[k].widen_to(g);
    xs[k].widen_to(normal);
    w[k].widen_to(scales);
#pragma unroll
    for (int e = 0; e < kRowPack; ++e) {
      g[e] *= scales[e];  // zero past the row's end, so the product below is too
      normal[e] = (normal[e] - centre) * scale;
    }
  };
  float g_sum = 0, h_sum = 0;
  for_row_packs<kHeld>(c, [&](int k, int64_t at) {
    float g[kRowPack], normal[kRowPack];
    read(k, at, g, normal);
#pragma unroll
    for (int e = 0; e < kRowPack; ++e) {
      g_sum += g[e];
      h_sum = fmaf(g[e], normal[e], h_sum);
    }
  });
  const float g_mean = group_sum(g_sum) * inverse, h_mean = group_sum(h_sum) * inverse;
  for_row_packs<kHeld>(c, [&](int k, int64_t at) {
    float g[kRowPack], normal[kRowPack];
    read(k, at, g, normal);
#pragma unroll
    for (int e = 0; e < kRowPack; ++e) g[e] = fmaf(-normal[e], h_mean, g[e] - g_mean) * scale;
    if (add) {
      float residual[kRowPack];
      if constexpr (kEarly<T, kHeld, kAligned>)
        before[k].widen_to(residual);
      else
        load(add, at, c, residual);
#pragma unroll
      for (int e = 0; e < kRowPack; ++e) g[e] += residual[e];
    }
    store_pack<kAligned>(g, static_cast<T*>(o.d_x) + r * c, at, c);
  });
}

}  // namespace

std::unique_ptr<Kernel> make_layer_norm(const KernelSpec& spec, const LaunchContext& context) {
  const int64_t r = rows(spec.in[0]), c = columns(spec.in[0]);
  return kernel_of([context, r, c, shape = RowShape(r, c),
                    eps = attrs_as<LayerNormAttrs>(spec.attrs).eps,
                    dtype = spec.in[0].dtype](const KernelCall& call) {
    if (r == 0) return;
    with_type(dtype, [&](auto t) {
      using T = decltype(t);
      const T *x = data<const T>(call.in, 0), *weight = data<const T>(call.in, 1),
              *bias = data<const T>(call.in, 2);
      T* y = data<T>(call.out, 0);
      with_flag(whole_packs<kRowPack>(c, x, weight, bias, y), [&](auto aligned) {
        constexpr bool kAligned = decltype(aligned)::value;
        launch(context.stream, "layer_norm", shape.grid,
               shape.held ? layer_norm_kernel<T, kHeldPacks, kAligned>
                          : layer_norm_kernel<T, 0, kAligned>,
               x, weight, bias, y, data<float>(call.out, 1), data<float>(call.out, 2), r, c, eps);
      });
    });
  });
}

std::unique_ptr<Kernel> make_layer_norm_input_grad(const KernelSpec& spec,
                                                   const LaunchContext& context) {
  const int64_t r = rows(spec.in[1]), c = columns(spec.in[1]);
  return kernel_of(
      [context, r, c, shape = RowShape(r, c), dtype = spec.in[1].dtype](const KernelCall& call) {
        if (r == 0) return;
        const NormGrad o{data(call.in, 0), data(call.in, 1),        data(call.in, 2),
                         data(call.in, 5), data<float>(call.in, 3), data<float>(call.in, 4),
                         data(call.out, 0)};
        with_type(dtype, [&](auto t) {
          using T = decltype(t);
          const bool whole =
              whole_packs<kRowPack>(c, static_cast<const T*>(o.d_y), static_cast<const T*>(o.x),
                                    static_cast<const T*>(o.weight), static_cast<const T*>(o.add),
                                    static_cast<const T*>(o.d_x));
          with_flag(whole, [&](auto aligned) {
            constexpr bool kAligned = decltype(aligned)::value;
            launch(context.stream, "layer_norm_input_grad", shape.grid,
                   shape.held ? input_grad_kernel<T, kHeldPacks, kAligned>
                              : input_grad_kernel<T, 0, kAligned>,
                   o, r, c);
          });
        });
      });
}

}  // namespace dstrain::DSTRAIN_BACKEND
