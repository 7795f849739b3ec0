// cast, accumulate and round_wire: conversions of flat ranges. Values are rounded to nearest, ties to even.
// accumulate adds in f32 and rounds each sum once to its output's dtype.
// Minimum memory traffic, bytes per element: cast s_in + s_out; accumulate the same, and s_out more when it adds;
// round_wire 8.
#include "kernels/cpu/memory_bound/kernels.h"
#include "kernels/cpu/memory_bound/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/memory_bound/cast.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/memory_bound/pack-inl.h"
#include "runtime/core/isa/best_variant.h"

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

void cast_range(DType from, DType to, const void* x, void* y, int64_t begin, int64_t end) {
  with_type(from, [=](auto s) SIMD_INLINE {
    with_type(to, [=](auto t) SIMD_INLINE {
      const auto* p = static_cast<const decltype(s)*>(x);
      auto* q = static_cast<decltype(t)*>(y);
      for_packs(begin, end,
                [=](int64_t i, auto n) SIMD_INLINE { store(load(p + i, n), q + i, n); });
    });
  });
}

void accumulate_range(DType from, DType to, const void* x, void* y, int64_t begin, int64_t end) {
  with_type(from, [=](auto s) SIMD_INLINE {
    with_type(to, [=](auto t) SIMD_INLINE {
      const auto* p = static_cast<const decltype(s)*>(x);
      auto* q = static_cast<decltype(t)*>(y);
      for_packs(begin, end, [=](int64_t i, auto n) SIMD_INLINE {
        store(load(q + i, n) + load(p + i, n), q + i, n);
      });
    });
  });
}

void round_range(DType wire, float* y, int64_t begin, int64_t end) {
  with_type(wire, [=](auto t) SIMD_INLINE {
    for_packs(begin, end, [=](int64_t i, auto n) SIMD_INLINE {
      alignas(64) decltype(t) rounded[kPack];
      store(load(y + i, n), rounded);
      store(load(rounded), y + i, n);
    });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain::simd {

std::unique_ptr<Kernel> make_cast(const KernelSpec& spec) {
  return kernel_of([threads = spec.threads, n = elements(spec.out[0]), from = spec.in[0].dtype,
                    to = spec.out[0].dtype](const KernelCall& call) {
    parallel_ranges(threads, n, kFlatGrain, [&](int64_t begin, int64_t end) {
      DSTRAIN_BEST(cast_range)
      (from, to, data(call.in, 0), data(call.out, 0), begin, end);
    });
  });
}

std::unique_ptr<Kernel> make_accumulate(const KernelSpec& spec) {
  return kernel_of([threads = spec.threads, n = elements(spec.out[0]), from = spec.in[0].dtype,
                    to = spec.out[0].dtype](const KernelCall& call) {
    parallel_ranges(threads, n, kFlatGrain, [&](int64_t begin, int64_t end) {
      const void* x = data(call.in, 0);
      void* y = data(call.out, 0);
      if (call.accumulate)
        DSTRAIN_BEST(accumulate_range)(from, to, x, y, begin, end);
      else
        DSTRAIN_BEST(cast_range)(from, to, x, y, begin, end);
    });
  });
}

std::unique_ptr<Kernel> make_round_wire(const KernelSpec& spec) {
  return kernel_of([threads = spec.threads, n = elements(spec.out[0]),
                    wire = attrs_as<WireAttrs>(spec.attrs).wire](const KernelCall& call) {
    if (wire == DType::f32) return;
    parallel_ranges(threads, n, kFlatGrain, [&](int64_t begin, int64_t end) {
      DSTRAIN_BEST(round_range)(wire, data<float>(call.out, 0), begin, end);
    });
  });
}

}  // namespace dstrain::simd
#endif
