// The gradients of layer_norm. Minimum memory traffic in bytes: layer_norm_input_grad 3 s R C (4 s R C with `add`),
// layer_norm_weight_grad 2 s R C.
#include "kernels/cpu/memory_bound/kernels.h"
#include "kernels/cpu/memory_bound/parallel.h"
#include "runtime/ir/ops/row_blocks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/memory_bound/layer_norm_grad.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/memory_bound/pack-inl.h"
#include "runtime/core/isa/best_variant.h"

#ifndef DSTRAIN_SIMD_LAYER_NORM_GRAD_ONCE
#define DSTRAIN_SIMD_LAYER_NORM_GRAD_ONCE
namespace dstrain::simd {
namespace {
struct NormGradIn {
  const void *d_y, *x, *weight, *add;
  const float *mean, *rstd;
};
}  // namespace
}  // namespace dstrain::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

// d_x = rstd * (g - mean(g) - xhat * mean(g * xhat)) + add, with g = d_y * weight.
template <class T>
SIMD_FN void input_grad_row(const T* d_y, const T* x, const T* weight, const T* add, float mean,
                            float rstd, int64_t c, T* d_x) {
  const Pack centre = all(mean), scale = all(rstd);
  const float inverse = 1.0f / static_cast<float>(c);
  Pack g0 = all(0), g1 = all(0), h0 = all(0), h1 = all(0);
  const auto step = [=](int64_t i, auto n, Pack& g_sum, Pack& h_sum) SIMD_INLINE {
    const Pack g = load(d_y + i, n) * load(weight + i, n);
    g_sum = g_sum + g;  // g is zero past the row's end, so the product below is too
    h_sum = fma(g, (load(x + i, n) - centre) * scale, h_sum);
  };
  int64_t i = 0;
  for (; i + 2 * kPack <= c; i += 2 * kPack) {
    step(i, Full{}, g0, h0);
    step(i + kPack, Full{}, g1, h1);
  }
  for_packs(i, c, [&](int64_t j, auto n) SIMD_INLINE { step(j, n, g0, h0); });
  const Pack g_mean = all(sum(g0 + g1) * inverse), h_mean = all(sum(h0 + h1) * inverse);
  const auto grad = [=](int64_t j, auto n) SIMD_INLINE {
    const Pack g = load(d_y + j, n) * load(weight + j, n);
    const Pack normal = (load(x + j, n) - centre) * scale;
    return fnma(normal, h_mean, g - g_mean) * scale;
  };
  if (add)
    for_packs(0, c, [=](int64_t j, auto n) SIMD_INLINE {
      store(grad(j, n) + load(add + j, n), d_x + j, n);
    });
  else
    for_packs(0, c, [=](int64_t j, auto n) SIMD_INLINE { store(grad(j, n), d_x + j, n); });
}

void input_grad_rows(DType dtype, int64_t c, const NormGradIn& in, void* d_x, int64_t begin,
                     int64_t end) {
  with_type(dtype, [&](auto t) SIMD_INLINE {
    using T = decltype(t);
    const auto row = [=](const void* p, int64_t r)
                         SIMD_INLINE { return p ? static_cast<const T*>(p) + r * c : nullptr; };
    for (int64_t r = begin; r < end; ++r)
      input_grad_row(row(in.d_y, r), row(in.x, r), static_cast<const T*>(in.weight), row(in.add, r),
                     in.mean[r], in.rstd[r], c, static_cast<T*>(d_x) + r * c);
  });
}

// Writes the sums of d_y * xhat and of d_y over rows [begin, end) to partial[0..c) and partial[c..2c).
void weight_grad_block(DType dtype, int64_t c, const NormGradIn& in, float* partial, int64_t begin,
                       int64_t end) {
  for_packs(0, 2 * c, [=](int64_t i, auto n) SIMD_INLINE { store(all(0), partial + i, n); });
  with_type(dtype, [&](auto t) SIMD_INLINE {
    using T = decltype(t);
    float *d_weight = partial, *d_bias = partial + c;
    constexpr int64_t kRows = 4;
    int64_t r = begin;
    for (; r + kRows <= end; r += kRows) {
      const T *g = static_cast<const T*>(in.d_y) + r * c, *x = static_cast<const T*>(in.x) + r * c;
      const float *mean = in.mean + r, *rstd = in.rstd + r;
      for_packs(0, c, [=](int64_t i, auto n) SIMD_INLINE {
        Pack w = load(d_weight + i, n), b = load(d_bias + i, n);
        SIMD_UNROLL
        for (int64_t k = 0; k < kRows; ++k) {
          const Pack grad = load(g + k * c + i, n);
          w = fma(grad, (load(x + k * c + i, n) - all(mean[k])) * all(rstd[k]), w);
          b = b + grad;
        }
        store(w, d_weight + i, n);
        store(b, d_bias + i, n);
      });
    }
    for (; r < end; ++r) {
      const T *g = static_cast<const T*>(in.d_y) + r * c, *x = static_cast<const T*>(in.x) + r * c;
      const Pack mean = all(in.mean[r]), rstd = all(in.rstd[r]);
      for_packs(0, c, [=](int64_t i, auto n) SIMD_INLINE {
        const Pack grad = load(g + i, n);
        store(fma(grad, (load(x + i, n) - mean) * rstd, load(d_weight + i, n)), d_weight + i, n);
        store(load(d_bias + i, n) + grad, d_bias + i, n);
      });
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain::simd {

std::unique_ptr<Kernel> make_layer_norm_input_grad(const KernelSpec& spec) {
  return kernel_of([threads = spec.threads, r = rows(spec.in[1]), c = columns(spec.in[1]),
                    dtype = spec.in[1].dtype](const KernelCall& call) {
    const NormGradIn in{data(call.in, 0), data(call.in, 1),        data(call.in, 2),
                        data(call.in, 5), data<float>(call.in, 3), data<float>(call.in, 4)};
    parallel_ranges(threads, r, row_grain(c * size_of(dtype)), [&](int64_t begin, int64_t end) {
      DSTRAIN_BEST(input_grad_rows)(dtype, c, in, data(call.out, 0), begin, end);
    });
  });
}

int64_t layer_norm_weight_grad_workspace(const KernelSpec& spec) {
  return RowBlocks(rows(spec.in[1])).count * 2 * columns(spec.in[1]) * size_of(DType::f32);
}

std::unique_ptr<Kernel> make_layer_norm_weight_grad(const KernelSpec& spec) {
  return kernel_of([threads = spec.threads, blocks = RowBlocks(rows(spec.in[1])),
                    c = columns(spec.in[1]), dtype = spec.in[1].dtype](const KernelCall& call) {
    const NormGradIn in{data(call.in, 0), data(call.in, 1),        nullptr,
                        nullptr,          data<float>(call.in, 2), data<float>(call.in, 3)};
    auto* partial = workspace<float>(call, blocks.count * 2 * c);
    const int64_t grain = row_grain(blocks.block * c * size_of(dtype));
    parallel_ranges(threads, blocks.count, grain, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) DSTRAIN_BEST(weight_grad_block)
      (dtype, c, in, partial + b * 2 * c, blocks.begin(b), blocks.end(b));
    });
    for (size_t k = 0; k < 2; ++k)
      sum_blocks(threads, partial + static_cast<int64_t>(k) * c, blocks.count, 2 * c, c,
                 call.accumulate, data<float>(call.out, k));
  });
}

}  // namespace dstrain::simd
#endif
