// rms_norm and its gradients, over rows of as many columns as there are weights. Normalised values are rounded to x's
// dtype before they meet the weights or their gradients, unless the weights are centred: 1 is added to each. Minimum memory traffic in bytes: rms_norm 2 s R C,
// rms_norm_input_grad 3 s R C (4 s R C with `add`), rms_norm_weight_grad 2 s R C.
#include <cmath>
#include <type_traits>

#include "kernels/cpu/memory_bound/kernels.h"
#include "kernels/cpu/memory_bound/parallel.h"
#include "runtime/ir/ops/row_blocks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/memory_bound/rms_norm.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/memory_bound/pack-inl.h"
#include "runtime/core/isa/best_variant.h"

#ifndef DSTRAIN_SIMD_RMS_NORM_ONCE
#define DSTRAIN_SIMD_RMS_NORM_ONCE
namespace dstrain::simd {
namespace {
struct RmsGradIn {
  const void *d_y, *x, *weight, *add;
  const float* rstd;
};
}  // namespace
}  // namespace dstrain::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

// Returns the values as a T holds them.
SIMD_FN Pack rounded_to(float, Pack a) {
  return a;
}
template <class T>
SIMD_FN Pack rounded_to(T t, Pack a) {
  Pack r;
  SIMD_UNROLL
  for (int i = 0; i < kParts; ++i) r.v[i] = widen(t, narrow(t, a.v[i]));
  return r;
}

// Calls f with whether weights are centred, as a type.
template <class F>
SIMD_FN void with_centred(bool centred, const F& f) {
  if (centred)
    f(std::true_type());
  else
    f(std::false_type());
}

// Returns the factors of columns, of which weights are held.
template <bool kCentred, class T, class N>
SIMD_FN Pack factors(const T* weight, int64_t i, N n) {
  const Pack w = load(weight + i, n);
  if constexpr (kCentred) return all(1) + w;
  return w;
}

// Returns normalised values as they meet the factors.
template <bool kCentred, class T>
SIMD_FN Pack normal_values(T t, Pack a) {
  if constexpr (kCentred) return a;
  return rounded_to(t, a);
}

// Normalises one row of `c` columns and returns 1 / its root mean square.
template <bool kCentred, class T>
SIMD_FN float rms_norm_row(const T* x, const T* weight, int64_t c, float eps, T* y) {
  const float square = sum(sum_packs(c, [=](int64_t i, auto n) SIMD_INLINE {
    const Pack v = load(x + i, n);
    return v * v;
  }));
  const float rstd = 1.0f / std::sqrt(square * (1.0f / static_cast<float>(c)) + eps);
  const Pack scale = all(rstd);
  for_packs(0, c, [=](int64_t i, auto n) SIMD_INLINE {
    store(normal_values<kCentred>(T{}, load(x + i, n) * scale) * factors<kCentred>(weight, i, n),
          y + i, n);
  });
  return rstd;
}

void rms_norm_rows(DType dtype, int64_t c, const RmsNormAttrs& attrs, const void* x,
                   const void* weight, void* y, float* rstd, int64_t begin, int64_t end) {
  with_type(dtype, [=](auto t) SIMD_INLINE {
    with_centred(attrs.centred, [=](auto centred) SIMD_INLINE {
      using T = decltype(t);
      constexpr bool kCentred = decltype(centred)::value;
      for (int64_t r = begin; r < end; ++r)
        rstd[r] =
            rms_norm_row<kCentred>(static_cast<const T*>(x) + r * c, static_cast<const T*>(weight),
                                   c, attrs.eps, static_cast<T*>(y) + r * c);
    });
  });
}

// d_x = rstd * (g - xhat * mean(g * xhat)) + add, with g = d_y * factor.
template <bool kCentred, class T>
SIMD_FN void rms_input_grad_row(const T* d_y, const T* x, const T* weight, const T* add, float rstd,
                                int64_t c, T* d_x) {
  const Pack scale = all(rstd);
  const float inverse = 1.0f / static_cast<float>(c);
  const Pack mean = all(sum(sum_packs(c,
                                      [=](int64_t i, auto n) SIMD_INLINE {
                                        return load(d_y + i, n) * factors<kCentred>(weight, i, n) *
                                               (load(x + i, n) * scale);
                                      })) *
                        inverse);
  const auto grad = [=](int64_t i, auto n) SIMD_INLINE {
    const Pack g = load(d_y + i, n) * factors<kCentred>(weight, i, n);
    return fnma(load(x + i, n) * scale, mean, g) * scale;
  };
  if (add)
    for_packs(0, c, [=](int64_t i, auto n) SIMD_INLINE {
      store(grad(i, n) + load(add + i, n), d_x + i, n);
    });
  else
    for_packs(0, c, [=](int64_t i, auto n) SIMD_INLINE { store(grad(i, n), d_x + i, n); });
}

void rms_input_grad_rows(DType dtype, int64_t c, bool is_centred, const RmsGradIn& in, void* d_x,
                         int64_t begin, int64_t end) {
  with_type(dtype, [&](auto t) SIMD_INLINE {
    using T = decltype(t);
    const auto row = [=](const void* p, int64_t r)
                         SIMD_INLINE { return p ? static_cast<const T*>(p) + r * c : nullptr; };
    with_centred(is_centred, [&](auto centred) SIMD_INLINE {
      for (int64_t r = begin; r < end; ++r)
        rms_input_grad_row<decltype(centred)::value>(
            row(in.d_y, r), row(in.x, r), static_cast<const T*>(in.weight), row(in.add, r),
            in.rstd[r], c, static_cast<T*>(d_x) + r * c);
    });
  });
}

// Writes the sums of d_y * xhat over rows [begin, end) to partial[0..c).
void rms_weight_grad_block(DType dtype, int64_t c, bool is_centred, const RmsGradIn& in,
                           float* partial, int64_t begin, int64_t end) {
  for_packs(0, c, [=](int64_t i, auto n) SIMD_INLINE { store(all(0), partial + i, n); });
  with_type(dtype, [&](auto t) SIMD_INLINE {
    using T = decltype(t);
    const auto add_rows = [&](int64_t r, auto count, auto centred) SIMD_INLINE {
      constexpr int64_t kRows = decltype(count)::value;
      constexpr bool kCentred = decltype(centred)::value;
      const T *g = static_cast<const T*>(in.d_y) + r * c, *x = static_cast<const T*>(in.x) + r * c;
      const float* rstd = in.rstd + r;
      for_packs(0, c, [=](int64_t i, auto n) SIMD_INLINE {
        Pack w = load(partial + i, n);
        SIMD_UNROLL
        for (int64_t k = 0; k < kRows; ++k)
          w = fma(load(g + k * c + i, n),
                  normal_values<kCentred>(T{}, load(x + k * c + i, n) * all(rstd[k])), w);
        store(w, partial + i, n);
      });
    };
    with_centred(is_centred, [&](auto centred) SIMD_INLINE {
      int64_t r = begin;
      for (; r + 4 <= end; r += 4) add_rows(r, std::integral_constant<int64_t, 4>(), centred);
      for (; r < end; ++r) add_rows(r, std::integral_constant<int64_t, 1>(), centred);
    });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain::simd {
namespace {

RowBlocks weight_blocks(const KernelSpec& spec) {
  return RowBlocks(elements(spec.in[0]) / std::max<int64_t>(1, elements(spec.out[0])));
}

}  // namespace

std::unique_ptr<Kernel> make_rms_norm(const KernelSpec& spec) {
  const int64_t c = elements(spec.in[1]);
  return kernel_of([threads = spec.threads, r = elements(spec.in[0]) / std::max<int64_t>(1, c), c,
                    dtype = spec.in[0].dtype,
                    attrs = attrs_as<RmsNormAttrs>(spec.attrs)](const KernelCall& call) {
    parallel_ranges(threads, r, row_grain(c * size_of(dtype)), [&](int64_t begin, int64_t end) {
      DSTRAIN_BEST(rms_norm_rows)
      (dtype, c, attrs, data(call.in, 0), data(call.in, 1), data(call.out, 0),
       data<float>(call.out, 1), begin, end);
    });
  });
}

std::unique_ptr<Kernel> make_rms_norm_input_grad(const KernelSpec& spec) {
  const int64_t c = elements(spec.in[2]);
  return kernel_of([threads = spec.threads, r = elements(spec.in[1]) / std::max<int64_t>(1, c), c,
                    centred = attrs_as<RmsNormAttrs>(spec.attrs).centred,
                    dtype = spec.in[1].dtype](const KernelCall& call) {
    const RmsGradIn in{data(call.in, 0), data(call.in, 1), data(call.in, 2), data(call.in, 4),
                       data<float>(call.in, 3)};
    parallel_ranges(threads, r, row_grain(c * size_of(dtype)), [&](int64_t begin, int64_t end) {
      DSTRAIN_BEST(rms_input_grad_rows)(dtype, c, centred, in, data(call.out, 0), begin, end);
    });
  });
}

int64_t rms_norm_weight_grad_workspace(const KernelSpec& spec) {
  return weight_blocks(spec).count * elements(spec.out[0]) * size_of(DType::f32);
}

std::unique_ptr<Kernel> make_rms_norm_weight_grad(const KernelSpec& spec) {
  return kernel_of([threads = spec.threads, blocks = weight_blocks(spec), c = elements(spec.out[0]),
                    centred = attrs_as<RmsNormAttrs>(spec.attrs).centred,
                    dtype = spec.in[1].dtype](const KernelCall& call) {
    const RmsGradIn in{data(call.in, 0), data(call.in, 1), nullptr, nullptr,
                       data<float>(call.in, 2)};
    auto* partial = workspace<float>(call, blocks.count * c);
    const int64_t grain = row_grain(blocks.block * c * size_of(dtype));
    parallel_ranges(threads, blocks.count, grain, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) DSTRAIN_BEST(rms_weight_grad_block)
      (dtype, c, centred, in, partial + b * c, blocks.begin(b), blocks.end(b));
    });
    sum_blocks(threads, partial, blocks.count, c, c, call.accumulate, data<float>(call.out, 0));
  });
}

}  // namespace dstrain::simd
#endif
