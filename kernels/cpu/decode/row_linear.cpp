// row_linear, and grouped_row_linear of experts. Threads divide the rows of the weight, so that each element of it is read from
// memory once by one core: the minimum memory traffic is the weight. A part of it stays in the second-level cache while rows of x
// meet it, four at a time.
#include <algorithm>

#include "kernels/cpu/decode/decode.h"
#include "kernels/cpu/memory_bound/parallel.h"
#include "kernels/operands.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/decode/row_linear.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/memory_bound/pack-inl.h"
#include "runtime/core/isa/best_variant.h"

#ifndef DSTRAIN_DECODE_ROW_LINEAR_ONCE
#define DSTRAIN_DECODE_ROW_LINEAR_ONCE
namespace dstrain::simd {
namespace {

// The operands of a product; `columns` are those of x and of the weight, `features` the rows of the weight.
struct RowProduct {
  int64_t rows, columns, features;
  DType dtype;  // of the weight
  bool relu;
  const float *x = nullptr, *bias = nullptr;
  const void* weight = nullptr;
  float* y = nullptr;
};

constexpr int64_t kWeightBytes = 256 * 1024;  // of the weight, in a second-level cache

}  // namespace
}  // namespace dstrain::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

// Rows of x and of the weight whose products fill the registers.
constexpr int kTileRows = kParts == 1 ? 4 : 2, kTileFeatures = kParts == 1 ? 4 : 2;

// Multiplies kRows rows of x by kFeatures rows of the weight. Each sum is one pack of 16 chains, so an element has the same
// bits in every tile.
template <int kRows, int kFeatures, class T>
SIMD_FN void multiply_tile(const RowProduct& p, const T* weight, int64_t row, int64_t feature) {
  const float* const x = p.x + row * p.columns;
  const T* const w = weight + feature * p.columns;
  Pack sums[kRows][kFeatures];
  for (int r = 0; r < kRows; ++r)
    for (int f = 0; f < kFeatures; ++f) sums[r][f] = all(0);
  for_packs(0, p.columns, [&](int64_t k, auto n) SIMD_INLINE {
    Pack part[kFeatures];
    SIMD_UNROLL
    for (int f = 0; f < kFeatures; ++f) part[f] = load(w + f * p.columns + k, n);
    SIMD_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const Pack value = load(x + r * p.columns + k, n);
      SIMD_UNROLL
      for (int f = 0; f < kFeatures; ++f) sums[r][f] = fma(value, part[f], sums[r][f]);
    }
  });
  for (int r = 0; r < kRows; ++r)
    for (int f = 0; f < kFeatures; ++f) {
      float value = sum(sums[r][f]);
      if (p.bias) value += p.bias[feature + f];
      if (p.relu) value = std::max(value, 0.0f);
      p.y[(row + r) * p.features + feature + f] = value;
    }
}

template <int kRows, class T>
SIMD_FN void multiply_rows_of(const RowProduct& p, const T* weight, int64_t row, int64_t begin,
                              int64_t end) {
  int64_t f = begin;
  for (; f + kTileFeatures <= end; f += kTileFeatures)
    multiply_tile<kRows, kTileFeatures>(p, weight, row, f);
  for (; f < end; ++f) multiply_tile<kRows, 1>(p, weight, row, f);
}

// Computes columns [begin, end) of y.
void multiply_features(const RowProduct& p, int64_t begin, int64_t end) {
  with_type(p.dtype, [&](auto t) SIMD_INLINE {
    using T = decltype(t);
    const T* const weight = static_cast<const T*>(p.weight);
    const int64_t bytes = std::max<int64_t>(1, p.columns * static_cast<int64_t>(sizeof(T)));
    const int64_t at_once = std::max<int64_t>(kTileFeatures, kWeightBytes / bytes);
    for (int64_t first = begin; first < end; first += at_once) {
      const int64_t last = std::min(end, first + at_once);
      int64_t row = 0;
      for (; row + kTileRows <= p.rows; row += kTileRows)
        multiply_rows_of<kTileRows>(p, weight, row, first, last);
      for (; row < p.rows; ++row) multiply_rows_of<1>(p, weight, row, first, last);
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain::simd {

std::unique_ptr<Kernel> make_row_linear(const KernelSpec& spec) {
  const RowProduct shape{
      .rows = rows(spec.in[0]),
      .columns = columns(spec.in[0]),
      .features = spec.in[1].shape[0],
      .dtype = spec.in[1].dtype,
      .relu = attrs_as<ActivationAttrs>(spec.attrs).activation == Activation::relu};
  return kernel_of([threads = spec.threads, shape](const KernelCall& call) {
    RowProduct product = shape;
    product.x = data<const float>(call.in, 0);
    product.weight = data<const void>(call.in, 1);
    product.bias = data<const float>(call.in, 2);
    product.y = data<float>(call.out, 0);
    const int64_t grain = row_grain(shape.columns * size_of(shape.dtype));
    parallel_ranges(threads, shape.features, (grain + 3) / 4 * 4, [&](int64_t begin, int64_t end) {
      DSTRAIN_BEST(multiply_features)(product, begin, end);
    });
  });
}

// The products of experts, one after the other: a row has the bits of row_linear's.
std::unique_ptr<Kernel> make_grouped_row_linear(const KernelSpec& spec) {
  const int64_t experts = elements(spec.in[2]);
  const RowProduct shape{.rows = 0,
                         .columns = columns(spec.in[0]),
                         .features = columns(spec.out[0]),
                         .dtype = spec.in[1].dtype,
                         .relu = false};
  return kernel_of([threads = spec.threads, experts, shape](const KernelCall& call) {
    const auto* const ends = data<const int32_t>(call.in, 2);
    const int64_t weight_bytes = shape.features * shape.columns * size_of(shape.dtype);
    const int64_t grain = (row_grain(shape.columns * size_of(shape.dtype)) + 3) / 4 * 4;
    for (int64_t e = 0; e < experts; ++e) {
      const int64_t first = e > 0 ? ends[e - 1] : 0;
      RowProduct product = shape;
      product.rows = ends[e] - first;
      if (product.rows == 0) continue;
      product.x = data<const float>(call.in, 0) + first * shape.columns;
      product.weight = data<const char>(call.in, 1) + e * weight_bytes;
      product.y = data<float>(call.out, 0) + first * shape.features;
      parallel_ranges(threads, shape.features, grain, [&](int64_t begin, int64_t end) {
        DSTRAIN_BEST(multiply_features)(product, begin, end);
      });
    }
  });
}

}  // namespace dstrain::simd
#endif
