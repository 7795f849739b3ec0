// spread_rows, combine_rows and combine_weight_grad. A thread has whole rows of the micro-batch: the rows of experts lie where
// `places` say. Minimum memory traffic in bytes, s bytes per element: s R C (S + 1).
#include "kernels/cpu/memory_bound/kernels.h"
#include "kernels/cpu/memory_bound/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/memory_bound/experts/rows.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/memory_bound/pack-inl.h"
#include "runtime/core/isa/best_variant.h"

#ifndef DSTRAIN_SIMD_EXPERT_ROWS_ONCE
#define DSTRAIN_SIMD_EXPERT_ROWS_ONCE
namespace dstrain::simd {
namespace {

// Rows, and where each of their slots is among the rows of experts.
struct Slotted {
  int64_t rows, columns, slots;
  DType dtype;
  const int32_t* places = nullptr;
  const float* weights = nullptr;  // null: all 1
};

}  // namespace
}  // namespace dstrain::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

void spread_range(const Slotted& s, const void* x, void* y, int64_t begin, int64_t end) {
  with_type(s.dtype, [&](auto t) SIMD_INLINE {
    using T = decltype(t);
    const int64_t c = s.columns;
    for (int64_t i = begin * s.slots; i < end * s.slots; ++i) {
      const T* const from = static_cast<const T*>(x) + i / s.slots * c;
      T* const to = static_cast<T*>(y) + s.places[i] * c;
      const Pack factor = all(s.weights ? s.weights[i] : 1.0f);
      for_packs(0, c, [=](int64_t k, auto n) SIMD_INLINE {
        store(load(from + k, n) * factor, to + k, n);
      });
    }
  });
}

void combine_range(const Slotted& s, const void* x, void* y, int64_t begin, int64_t end) {
  with_type(s.dtype, [&](auto t) SIMD_INLINE {
    using T = decltype(t);
    const int64_t c = s.columns, slots = s.slots;
    const T* const rows = static_cast<const T*>(x);
    for (int64_t r = begin; r < end; ++r) {
      const int32_t* const places = s.places + r * slots;
      const float* const weights = s.weights ? s.weights + r * slots : nullptr;
      T* const to = static_cast<T*>(y) + r * c;
      for_packs(0, c, [=](int64_t k, auto n) SIMD_INLINE {
        Pack sum = all(0);
        for (int64_t j = 0; j < slots; ++j)
          sum = fma(load(rows + places[j] * c + k, n), all(weights ? weights[j] : 1.0f), sum);
        store(sum, to + k, n);
      });
    }
  });
}

void weight_grad_range(const Slotted& s, const void* d_y, const void* x, float* d_weights,
                       int64_t begin, int64_t end) {
  with_type(s.dtype, [&](auto t) SIMD_INLINE {
    using T = decltype(t);
    const int64_t c = s.columns;
    for (int64_t i = begin * s.slots; i < end * s.slots; ++i) {
      const T* const of_row = static_cast<const T*>(d_y) + i / s.slots * c;
      const T* const of_expert = static_cast<const T*>(x) + s.places[i] * c;
      d_weights[i] = sum(sum_packs(c, [=](int64_t k, auto n) SIMD_INLINE {
        return load(of_row + k, n) * load(of_expert + k, n);
      }));
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain::simd {
namespace {

Slotted slotted(const TensorSpec& x, const TensorSpec& places) {
  return {rows(x), columns(x), columns(places), x.dtype};
}

int64_t grain_of(const Slotted& s) {
  return row_grain(s.columns * (s.slots + 1) * size_of(s.dtype));
}

}  // namespace

std::unique_ptr<Kernel> make_spread_rows(const KernelSpec& spec) {
  return kernel_of(
      [threads = spec.threads, shape = slotted(spec.in[0], spec.in[1])](const KernelCall& call) {
        Slotted s = shape;
        s.places = data<const int32_t>(call.in, 1);
        s.weights = data<const float>(call.in, 2);
        parallel_ranges(threads, s.rows, grain_of(s), [&](int64_t begin, int64_t end) {
          DSTRAIN_BEST(spread_range)(s, data(call.in, 0), data(call.out, 0), begin, end);
        });
      });
}

std::unique_ptr<Kernel> make_combine_rows(const KernelSpec& spec) {
  return kernel_of(
      [threads = spec.threads, shape = slotted(spec.out[0], spec.in[1])](const KernelCall& call) {
        Slotted s = shape;
        s.places = data<const int32_t>(call.in, 1);
        s.weights = data<const float>(call.in, 2);
        parallel_ranges(threads, s.rows, grain_of(s), [&](int64_t begin, int64_t end) {
          DSTRAIN_BEST(combine_range)(s, data(call.in, 0), data(call.out, 0), begin, end);
        });
      });
}

std::unique_ptr<Kernel> make_combine_weight_grad(const KernelSpec& spec) {
  return kernel_of(
      [threads = spec.threads, shape = slotted(spec.in[0], spec.in[2])](const KernelCall& call) {
        Slotted s = shape;
        s.places = data<const int32_t>(call.in, 2);
        parallel_ranges(threads, s.rows, grain_of(s), [&](int64_t begin, int64_t end) {
          DSTRAIN_BEST(weight_grad_range)
          (s, data(call.in, 0), data(call.in, 1), data<float>(call.out, 0), begin, end);
        });
      });
}

}  // namespace dstrain::simd
#endif
