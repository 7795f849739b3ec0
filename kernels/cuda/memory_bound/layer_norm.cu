// layer_norm: y = (x - mean) * rstd * weight + bias. The variance is computed from x - mean in a second pass, so it
// stays accurate where the mean is large.
// Minimum memory traffic: 2 s R C bytes, as a row of up to 16384 elements stays in registers between its passes.
#include "kernels/cuda/memory_bound/memory_bound.cuh"
#include "kernels/cuda/memory_bound/rows.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

template <class T, int kHeld>
__global__ void __launch_bounds__(kRowThreads)
    layer_norm_kernel(const T* x, const T* weight, const T* bias, T* y, float* mean, float* rstd,
                      int64_t rows, int64_t c, float eps) {
  const int64_t r = row_of_group();
  if (r >= rows) return;
  const T* row = x + r * c;
  const float inverse = 1.0f / static_cast<float>(c);
  float held[kHeld > 0 ? kHeld : 1][kRowPack];
  float sum = 0;
  for_row_packs<kHeld>(c, [&](int k, int64_t at) {
    load_constant(row, at, c, held[k]);
#pragma unroll
    for (int e = 0; e < kRowPack; ++e) sum += held[k][e];
  });
  const float centre = group_sum(sum) * inverse;
  float square = 0;
  for_row_packs<kHeld>(c, [&](int k, int64_t at) {
    if (kHeld == 0) load_constant(row, at, c, held[k]);
#pragma unroll
    for (int e = 0; e < kRowPack; ++e) {
      const float d = held[k][e] - centre;
      if (at + e < c) square = fmaf(d, d, square);
    }
  });
  const float scale = 1.0f / sqrtf(group_sum(square) * inverse + eps);
  for_row_packs<kHeld>(c, [&](int k, int64_t at) {
    if (kHeld == 0) load_constant(row, at, c, held[k]);
    float w[kRowPack], b[kRowPack];
    load_constant(weight, at, c, w);
    load_constant(bias, at, c, b);
#pragma unroll
    for (int e = 0; e < kRowPack; ++e) b[e] = fmaf((held[k][e] - centre) * scale, w[e], b[e]);
    store(b, y + r * c, at, c);
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
template <class T, int kHeld>
__global__ void __launch_bounds__(kRowThreads)
    input_grad_kernel(NormGrad o, int64_t rows, int64_t c) {
  const int64_t r = row_of_group();
  if (r >= rows) return;
  const T *d_y = static_cast<const T*>(o.d_y) + r * c, *x = static_cast<const T*>(o.x) + r * c;
  const T* add = o.add ? static_cast<const T*>(o.add) + r * c : nullptr;
  const float centre = o.mean[r], scale = o.rstd[r], inverse = 1.0f / static_cast<float>(c);
  float g[kHeld > 0 ? kHeld : 1][kRowPack], normal[kHeld > 0 ? kHeld : 1][kRowPack];
  const auto read = [&](int k, int64_t at) {
    float w[kRowPack];
    load_constant(d_y, at, c, g[k]);
    load_constant(x, at, c, normal[k]);
    load_constant(static_cast<const T*>(o.weight), at, c, w);
#pragma unroll
    for (int e = 0; e < kRowPack; ++e) {
      g[k][e] *= w[e];  // zero past the row's end, so the product below is too
      normal[k][e] = (normal[k][e] - centre) * scale;
    }
  };
  float g_sum = 0, h_sum = 0;
  for_row_packs<kHeld>(c, [&](int k, int64_t at) {
    read(k, at);
#pragma unroll
    for (int e = 0; e < kRowPack; ++e) {
      g_sum += g[k][e];
      h_sum = fmaf(g[k][e], normal[k][e], h_sum);
    }
  });
  const float g_mean = group_sum(g_sum) * inverse, h_mean = group_sum(h_sum) * inverse;
  for_row_packs<kHeld>(c, [&](int k, int64_t at) {
    if (kHeld == 0) read(k, at);
    float v[kRowPack];
#pragma unroll
    for (int e = 0; e < kRowPack; ++e) v[e] = fmaf(-normal[k][e], h_mean, g[k][e] - g_mean) * scale;
    if (add) {
      float before[kRowPack];
      load(add, at, c, before);
#pragma unroll
      for (int e = 0; e < kRowPack; ++e) v[e] += before[e];
    }
    store(v, static_cast<T*>(o.d_x) + r * c, at, c);
  });
}

}  // namespace

std::unique_ptr<Kernel> make_layer_norm(const KernelSpec& spec, const LaunchContext& context) {
  const int64_t r = rows(spec.in[0]), c = columns(spec.in[0]);
  return kernel_of([context, r, c, shape = RowShape(r, c), eps = attrs_as<LayerNormAttrs>(spec.attrs).eps,
                    dtype = spec.in[0].dtype](const KernelCall& call) {
    if (r == 0) return;
    with_type(dtype, [&](auto t) {
      using T = decltype(t);
      launch(context.stream, "layer_norm", shape.grid,
             shape.held ? layer_norm_kernel<T, kHeldPacks> : layer_norm_kernel<T, 0>,
             data<const T>(call.in, 0), data<const T>(call.in, 1), data<const T>(call.in, 2),
             data<T>(call.out, 0), data<float>(call.out, 1), data<float>(call.out, 2), r, c, eps);
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
          launch(context.stream, "layer_norm_input_grad", shape.grid,
                 shape.held ? input_grad_kernel<T, kHeldPacks> : input_grad_kernel<T, 0>, o, r, c);
        });
      });
}

}  // namespace dstrain::DSTRAIN_BACKEND
