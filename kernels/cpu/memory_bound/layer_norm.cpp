// layer_norm: y = (x - mean) * rstd * weight + bias, in f32, in a fixed order of lanes. The variance is computed
// from x - mean in a second pass, so it stays accurate where the mean is large.
// Minimum memory traffic: 2 s R C bytes, as a row stays in the first-level cache between its passes.
#include <cmath>

#include "kernels/cpu/memory_bound/kernels.h"
#include "kernels/cpu/memory_bound/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/memory_bound/layer_norm.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/memory_bound/pack-inl.h"
#include "runtime/core/isa/best_variant.h"

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

// Normalises one row of `c` columns and writes its statistics.
template <class T>
SIMD_FN void norm_row(const T* x, const T* weight, const T* bias, int64_t c, float eps, T* y,
                      float* mean_out, float* rstd_out) {
  const float inverse = 1.0f / static_cast<float>(c);
  const float mean =
      sum(sum_packs(c, [=](int64_t i, auto n) SIMD_INLINE { return load(x + i, n); })) * inverse;
  const Pack centre = all(mean);
  const float variance = sum(sum_packs(c,
                                       [=](int64_t i, auto n) SIMD_INLINE {
                                         const Pack d = load(x + i, n) - centre;
                                         return d * d;
                                       })) *
                         inverse;
  const float rstd = 1.0f / std::sqrt(variance + eps);
  const Pack scale = all(rstd);
  for_packs(0, c, [=](int64_t i, auto n) SIMD_INLINE {
    const Pack normal = (load(x + i, n) - centre) * scale;
    store(fma(normal, load(weight + i, n), load(bias + i, n)), y + i, n);
  });
  *mean_out = mean;
  *rstd_out = rstd;
}

void layer_norm_rows(DType dtype, int64_t c, float eps, const void* x, const void* weight,
                     const void* bias, void* y, float* mean, float* rstd, int64_t begin,
                     int64_t end) {
  with_type(dtype, [=](auto t) SIMD_INLINE {
    using T = decltype(t);
    for (int64_t r = begin; r < end; ++r)
      norm_row(static_cast<const T*>(x) + r * c, static_cast<const T*>(weight),
               static_cast<const T*>(bias), c, eps, static_cast<T*>(y) + r * c, mean + r, rstd + r);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain::simd {

std::unique_ptr<Kernel> make_layer_norm(const KernelSpec& spec) {
  return kernel_of([threads = spec.threads, r = rows(spec.in[0]), c = columns(spec.in[0]),
                    dtype = spec.in[0].dtype,
                    eps = attrs_as<LayerNormAttrs>(spec.attrs).eps](const KernelCall& call) {
    parallel_ranges(threads, r, row_grain(c * size_of(dtype)), [&](int64_t begin, int64_t end) {
      DSTRAIN_BEST(layer_norm_rows)
      (dtype, c, eps, data(call.in, 0), data(call.in, 1), data(call.in, 2), data(call.out, 0),
       data<float>(call.out, 1), data<float>(call.out, 2), begin, end);
    });
  });
}

}  // namespace dstrain::simd
#endif
