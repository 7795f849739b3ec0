// sum_rows: d_bias = the sum of d_y over its rows, in f32. Eight rows are added as a tree, then the trees of a
// block in order, then the blocks in order: with 100,000 rows no chain of additions is longer than 256.
// Minimum memory traffic: s R N bytes.
#include "kernels/cpu/memory_bound/kernels.h"
#include "kernels/cpu/memory_bound/parallel.h"
#include "runtime/ir/ops/row_blocks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/memory_bound/sum_rows.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/memory_bound/pack-inl.h"
#include "runtime/core/isa/best_variant.h"

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

// Writes the sum of rows [begin, end) of d_y to partial[0 .. columns).
void sum_block(DType dtype, int64_t columns, const void* d_y, float* partial, int64_t begin,
               int64_t end) {
  for_packs(0, columns, [=](int64_t i, auto n) SIMD_INLINE { store(all(0), partial + i, n); });
  with_type(dtype, [=](auto t) SIMD_INLINE {
    using T = decltype(t);
    int64_t r = begin;
    for (; r + 8 <= end; r += 8) {
      const T* from = static_cast<const T*>(d_y) + r * columns;
      for_packs(0, columns, [=](int64_t i, auto n) SIMD_INLINE {
        Pack pair[4];
        SIMD_UNROLL
        for (int k = 0; k < 4; ++k)
          pair[k] = load(from + 2 * k * columns + i, n) + load(from + (2 * k + 1) * columns + i, n);
        const Pack tree = (pair[0] + pair[1]) + (pair[2] + pair[3]);
        store(load(partial + i, n) + tree, partial + i, n);
      });
    }
    for (; r < end; ++r) {
      const T* from = static_cast<const T*>(d_y) + r * columns;
      for_packs(0, columns, [=](int64_t i, auto n) SIMD_INLINE {
        store(load(partial + i, n) + load(from + i, n), partial + i, n);
      });
    }
  });
}

void sum_block_columns(const float* partial, int64_t blocks, int64_t stride, bool accumulate,
                       float* out, int64_t begin, int64_t end) {
  for_packs(begin, end, [=](int64_t i, auto n) SIMD_INLINE {
    sum_strided(partial + i, blocks, stride, accumulate, out + i, n);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain::simd {

void sum_blocks(int threads, const float* partial, int64_t blocks, int64_t stride, int64_t columns,
                bool accumulate, float* out) {
  parallel_ranges(threads, columns, kFlatGrain / 4, [&](int64_t begin, int64_t end) {
    DSTRAIN_BEST(sum_block_columns)
    (partial, blocks, stride, accumulate, out, begin, end);
  });
}

int64_t sum_rows_workspace(const KernelSpec& spec) {
  if (attrs_as<SumRowsAttrs>(spec.attrs) != SumRowsAttrs{}) return 0;
  return RowBlocks(rows(spec.in[0])).count * columns(spec.in[0]) * size_of(DType::f32);
}

std::unique_ptr<Kernel> make_sum_rows(const KernelSpec& spec) {
  const auto attrs = attrs_as<SumRowsAttrs>(spec.attrs);
  const int64_t r = rows(spec.in[0]), c = columns(spec.in[0]);
  if (attrs.of_blocks)
    return kernel_of([threads = spec.threads, r, c](const KernelCall& call) {
      sum_blocks(threads, data<const float>(call.in, 0), r, c, c, call.accumulate,
                 data<float>(call.out, 0));
    });
  return kernel_of([threads = spec.threads, pieces = attrs.block > 0, c,
                    blocks = attrs.block > 0 ? RowBlocks(r, attrs.block) : RowBlocks(r),
                    dtype = spec.in[0].dtype](const KernelCall& call) {
    float* const partial =
        pieces ? data<float>(call.out, 0) : workspace<float>(call, blocks.count * c);
    const int64_t grain = row_grain(blocks.block * c * size_of(dtype));
    parallel_ranges(threads, blocks.count, grain, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) DSTRAIN_BEST(sum_block)
      (dtype, c, data(call.in, 0), partial + b * c, blocks.begin(b), blocks.end(b));
    });
    if (!pieces)
      sum_blocks(threads, partial, blocks.count, c, c, call.accumulate, data<float>(call.out, 0));
  });
}

}  // namespace dstrain::simd
#endif
