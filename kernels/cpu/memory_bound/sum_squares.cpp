// sum_squares: the f64 sum of squares, first of blocks of 4096 elements, then of the blocks in order. Within a
// block, element i is added to sum i mod 32 in order, and the 32 sums are added as a tree. The square of an f32
// is exact in f64, so all instruction sets and numbers of threads give the same bits. Minimum memory traffic:
// the elements, read once. error_squares: the same of the differences of two operands, which are rounded to f32, and of
// the first one.
#include "kernels/cpu/memory_bound/kernels.h"
#include "kernels/cpu/memory_bound/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/memory_bound/sum_squares.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/memory_bound/pack-inl.h"
#include "runtime/core/isa/best_variant.h"

#ifndef DSTRAIN_SIMD_SUM_SQUARES_ONCE
#define DSTRAIN_SIMD_SUM_SQUARES_ONCE
namespace dstrain::simd {
namespace {
constexpr int64_t kBlock = 4096;
}  // namespace
}  // namespace dstrain::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

constexpr int kChains = 32;

double square_floats(const float* x, int64_t n) {
  using DD = hn::CappedTag<double, 8>;
  constexpr int kWide = static_cast<int>(hn::MaxLanes(DD()));
  const hn::Rebind<float, DD> narrow;
  hn::Vec<DD> chain[kChains / kWide];
  SIMD_UNROLL
  for (auto& c : chain) c = hn::Zero(DD());
  const auto add = [&](const float* from) SIMD_INLINE {
    SIMD_UNROLL
    for (int k = 0; k < kChains / kWide; ++k) {
      const auto wide = hn::PromoteTo(DD(), hn::LoadU(narrow, from + k * kWide));
      chain[k] = hn::MulAdd(wide, wide, chain[k]);
    }
  };
  int64_t i = 0;
  for (; i + kChains <= n; i += kChains) add(x + i);
  if (i < n) {
    float tail[kChains] = {};
    for (int64_t k = i; k < n; ++k) tail[k - i] = x[k];
    add(tail);
  }
  double lane[kChains];
  SIMD_UNROLL
  for (int k = 0; k < kChains / kWide; ++k) hn::StoreU(chain[k], DD(), lane + k * kWide);
  for (int half = kChains / 2; half > 0; half /= 2)
    for (int k = 0; k < half; ++k) lane[k] += lane[k + half];
  return lane[0];
}

// Returns the sum of squares of elements [begin, begin + n); 16-bit elements are widened first.
double square_block(DType dtype, const void* values, int64_t begin, int64_t n) {
  if (dtype == DType::f32) return square_floats(static_cast<const float*>(values) + begin, n);
  alignas(64) float wide[kBlock];
  with_type(dtype, [&](auto t) SIMD_INLINE {
    const auto* from = static_cast<const decltype(t)*>(values) + begin;
    for_packs(0, n, [&](int64_t i, auto lanes) SIMD_INLINE {
      store(load(from + i, lanes), wide + i, lanes);
    });
  });
  return square_floats(wide, n);
}

// Writes the sums of squares of x - y and of x, elements [begin, begin + n), to out[0] and out[stride].
void error_block(DType x_type, const void* x, DType y_type, const void* y, int64_t begin, int64_t n,
                 double* out, int64_t stride) {
  alignas(64) float wide[kBlock], error[kBlock];
  const auto widen_to = [=](DType dtype, const void* values, float* to) SIMD_INLINE {
    with_type(dtype, [&](auto t) SIMD_INLINE {
      const auto* from = static_cast<const decltype(t)*>(values) + begin;
      for_packs(0, n, [&](int64_t i, auto lanes) SIMD_INLINE {
        store(load(from + i, lanes), to + i, lanes);
      });
    });
  };
  widen_to(x_type, x, wide);
  widen_to(y_type, y, error);
  for_packs(0, n, [&](int64_t i, auto lanes) SIMD_INLINE {
    store(load(wide + i, lanes) - load(error + i, lanes), error + i, lanes);
  });
  out[0] = square_floats(error, n);
  out[stride] = square_floats(wide, n);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain::simd {

namespace {
int64_t block_count(int64_t n) {
  return (n + kBlock - 1) / kBlock;
}
}  // namespace

int64_t sum_squares_workspace(const KernelSpec& spec) {
  return block_count(elements(spec.in[0])) * size_of(DType::f64);
}

std::unique_ptr<Kernel> make_sum_squares(const KernelSpec& spec) {
  return kernel_of([threads = spec.threads, n = elements(spec.in[0]),
                    dtype = spec.in[0].dtype](const KernelCall& call) {
    auto* sums = workspace<double>(call, block_count(n));
    parallel_ranges(threads, block_count(n), 4, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b)
        sums[b] = DSTRAIN_BEST(square_block)(dtype, data(call.in, 0), b * kBlock,
                                             std::min(kBlock, n - b * kBlock));
    });
    double total = 0;
    for (int64_t b = 0; b < block_count(n); ++b) total += sums[b];
    *data<double>(call.out, 0) = total;
  });
}

int64_t error_squares_workspace(const KernelSpec& spec) {
  return 2 * sum_squares_workspace(spec);
}

std::unique_ptr<Kernel> make_error_squares(const KernelSpec& spec) {
  return kernel_of([threads = spec.threads, n = elements(spec.in[0]), x_type = spec.in[0].dtype,
                    y_type = spec.in[1].dtype](const KernelCall& call) {
    auto* sums = workspace<double>(call, 2 * block_count(n));
    const int64_t blocks = block_count(n);
    parallel_ranges(threads, blocks, 4, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) DSTRAIN_BEST(error_block)
      (x_type, data(call.in, 0), y_type, data(call.in, 1), b * kBlock,
       std::min(kBlock, n - b * kBlock), sums + b, blocks);
    });
    for (int64_t k = 0; k < 2; ++k) {
      double total = 0;
      for (int64_t b = 0; b < blocks; ++b) total += sums[k * blocks + b];
      data<double>(call.out, 0)[k] = total;
    }
  });
}

}  // namespace dstrain::simd
#endif
