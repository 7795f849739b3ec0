// split_columns and join_columns: the columns of rows in parts, one after the other, and back.
// Minimum memory traffic in bytes, s bytes per element of N columns whose parts are K copies: s R N (1 + K).
#include <cstring>

#include "kernels/cpu/memory_bound/kernels.h"
#include "kernels/cpu/memory_bound/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/memory_bound/columns.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/memory_bound/pack-inl.h"
#include "runtime/core/isa/best_variant.h"

#ifndef DSTRAIN_SIMD_COLUMNS_ONCE
#define DSTRAIN_SIMD_COLUMNS_ONCE
namespace dstrain::simd {
namespace {

// Where the blocks of rows are: whole rows have `sections` times `blocks` blocks of `width` elements, and a row of each of
// the blocks * copies parts has `sections`.
struct Blocks {
  int64_t rows, sections, blocks, copies, width;
  DType dtype;

  int64_t columns() const { return sections * blocks * width; }
  // Returns the first element of a block in the whole rows.
  int64_t whole(int64_t row, int64_t section, int64_t block) const {
    return ((row * sections + section) * blocks + block) * width;
  }
  // Returns the first element of a copy of it in the parts.
  int64_t split(int64_t row, int64_t section, int64_t block, int64_t copy) const {
    return (((block * copies + copy) * rows + row) * sections + section) * width;
  }
  // Calls f(row, section, block) for each block of rows [begin, end). f has no instructions of a Highway target.
  template <class F>
  void for_each(int64_t begin, int64_t end, const F& f) const {
    for (int64_t row = begin; row < end; ++row)
      for (int64_t section = 0; section < sections; ++section)
        for (int64_t block = 0; block < blocks; ++block) f(row, section, block);
  }
};

// Copies element `from` of `x`, and those that follow it in a block, to element `to` of `y`.
void copy_block(const Blocks& b, const void* x, int64_t from, void* y, int64_t to) {
  const int64_t size = size_of(b.dtype);
  std::memcpy(static_cast<char*>(y) + to * size, static_cast<const char*>(x) + from * size,
              static_cast<size_t>(b.width * size));
}

}  // namespace
}  // namespace dstrain::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

// Computes rows [begin, end) of y, the whole rows: of each block the sum of its copies in x, in the order of parts.
void add_copies(const Blocks& b, const void* x, void* y, int64_t begin, int64_t end) {
  const int64_t stride = b.rows * b.sections * b.width;  // from a part to the next one
  with_type(b.dtype, [&](auto t) SIMD_INLINE {
    using T = decltype(t);
    const int64_t copies = b.copies;
    for (int64_t row = begin; row < end; ++row)
      for (int64_t section = 0; section < b.sections; ++section)
        for (int64_t block = 0; block < b.blocks; ++block) {
          const T* from = static_cast<const T*>(x) + b.split(row, section, block, 0);
          T* to = static_cast<T*>(y) + b.whole(row, section, block);
          for_packs(0, b.width, [=](int64_t i, auto n) SIMD_INLINE {
            Pack total = load(from + i, n);
            for (int64_t k = 1; k < copies; ++k) total = total + load(from + k * stride + i, n);
            store(total, to + i, n);
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
namespace {

// Returns where the blocks of `whole` rows are.
Blocks blocks_of(const KernelSpec& spec, const TensorSpec& whole) {
  const auto attrs = attrs_as<ColumnsAttrs>(spec.attrs);
  const int64_t blocks = attrs.parts / attrs.copies;
  return {.rows = rows(whole),
          .sections = attrs.sections,
          .blocks = blocks,
          .copies = attrs.copies,
          .width = columns(whole) / (attrs.sections * blocks),
          .dtype = whole.dtype};
}

// Returns the fewest rows that a thread of its own is worth.
int64_t grain_of(const Blocks& b) {
  return row_grain(b.columns() * b.copies * size_of(b.dtype));
}

}  // namespace

std::unique_ptr<Kernel> make_split_columns(const KernelSpec& spec) {
  return kernel_of(
      [threads = spec.threads, b = blocks_of(spec, spec.in[0])](const KernelCall& call) {
        parallel_ranges(threads, b.rows, grain_of(b), [&](int64_t begin, int64_t end) {
          b.for_each(begin, end, [&](int64_t row, int64_t section, int64_t block) {
            for (int64_t copy = 0; copy < b.copies; ++copy)
              copy_block(b, data(call.in, 0), b.whole(row, section, block), data(call.out, 0),
                         b.split(row, section, block, copy));
          });
        });
      });
}

std::unique_ptr<Kernel> make_join_columns(const KernelSpec& spec) {
  return kernel_of(
      [threads = spec.threads, b = blocks_of(spec, spec.out[0])](const KernelCall& call) {
        const void* x = data(call.in, 0);
        void* y = data(call.out, 0);
        parallel_ranges(threads, b.rows, grain_of(b), [&](int64_t begin, int64_t end) {
          if (b.copies > 1) {
            DSTRAIN_BEST(add_copies)(b, x, y, begin, end);
            return;
          }
          b.for_each(begin, end, [&](int64_t row, int64_t section, int64_t block) {
            copy_block(b, x, b.split(row, section, block, 0), y, b.whole(row, section, block));
          });
        });
      });
}

}  // namespace dstrain::simd
#endif
