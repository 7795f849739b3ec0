// layer_norm: y = (x - mean) * rstd * weight + bias. The variance is computed from x - mean in a second pass, so it
// stays accurate where the mean is large.
// Minimum memory traffic: 2 s R C bytes, as a row of up to 16384 elements stays in registers between its passes.
#include "kernels/cuda/memory_bound/memory_bound.cuh"
#include "kernels/cuda/memory_bound/rows.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

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

}  // namespace dstrain::DSTRAIN_BACKEND
