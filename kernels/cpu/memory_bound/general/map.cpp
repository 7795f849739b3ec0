// map: a formula at each index of a space. Minimum memory traffic: the operands once, and the result; a step costs a load and
// a store of a tile beside its arithmetic.
#include "kernels/cpu/memory_bound/kernels.h"
#include "kernels/cpu/memory_bound/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/memory_bound/general/map.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/memory_bound/general/walk-inl.h"
#include "runtime/core/isa/best_variant.h"

#ifndef DSTRAIN_SIMD_MAP_ONCE
#define DSTRAIN_SIMD_MAP_ONCE
namespace dstrain::simd {
namespace {

// A block of the result: its columns are long enough to be fetched ahead in an operand that has them side by side, and its
// rows are whole cache lines.
constexpr int64_t kBlockRows = 512, kBlockColumns = 256;
// So many elements of a block are computed at a time. They are few, so that reads and writes alternate.
constexpr int64_t kPartRows = 32, kPartColumns = 16;
constexpr int64_t kWriteAhead =
    16;  // rows of f32 results that are fetched: each is a cache line of a part

struct MapRun {
  Walk walk{};
  DType dtype{};
  void* out = nullptr;
  bool accumulate = false;
  // The dimension across which operands are read in blocks; none: along the last one.
  std::optional<int> across{};

  // Return the side of a block along a dimension, how many there are, and how many the space has.
  int64_t side(int d) const {
    return d == *across ? kBlockRows : d == walk.last() ? kBlockColumns : 1;
  }
  int64_t blocks_of(int d) const { return (walk.space[d] + side(d) - 1) / side(d); }
  int64_t blocks() const {
    int64_t blocks = 1;
    for (int d = 0; d < walk.space.rank; ++d) blocks *= blocks_of(d);
    return blocks;
  }
  // Returns the index of a block's first element.
  View::Numbers index_of(int64_t block) const {
    View::Numbers index{};
    for (int d = walk.last(); d >= 0; --d) {
      index[static_cast<size_t>(d)] = block % blocks_of(d) * side(d);
      block /= blocks_of(d);
    }
    return index;
  }
};

}  // namespace
}  // namespace dstrain::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

// Computes elements [begin, end) of the result.
void map_range(const MapRun& m, int64_t begin, int64_t end) {
  Tiles tiles(m.walk);
  const bool in_place = m.dtype == DType::f32 && !m.accumulate;
  for (int64_t n = 0; begin < end; begin += n) {
    n = tiles.of_one_row(begin, std::min(kTile, end - begin));
    float* const to = in_place ? static_cast<float*>(m.out) + begin : nullptr;
    const float* const values = tiles.values(begin, n, to);
    if (!to || values != to) write_values(values, n, m.accumulate, m.dtype, m.out, begin);
  }
}

// Computes blocks [begin, end) of the result.
void map_blocks(const MapRun& m, int64_t begin, int64_t end) {
  Tiles tiles(m.walk);
  const Shape& space = m.walk.space;
  const View result = dense_view(space);
  const auto across = static_cast<size_t>(*m.across), last = static_cast<size_t>(m.walk.last());
  Rectangle part{.across = *m.across};
  for (; begin < end; ++begin) {
    const View::Numbers first = m.index_of(begin);
    const int64_t rows_end = std::min(first[across] + kBlockRows, space.dims[across]),
                  columns_end = std::min(first[last] + kBlockColumns, space.dims[last]);
    for (int64_t column = first[last]; column < columns_end; column += kPartColumns) {
      part.index = first;
      part.index[last] = column;
      part.columns = std::min(kPartColumns, columns_end - column);
      int64_t at = element_of(result, space, part.index);
      for (; part.index[across] < rows_end; part.index[across] += part.rows) {
        part.rows = std::min(kPartRows, rows_end - part.index[across]);
        if (m.dtype == DType::f32)
          for (int64_t row = 0; row < part.rows; ++row)
            __builtin_prefetch(
                static_cast<float*>(m.out) + at + (row + kWriteAhead) * result.strides[across], 1);
        const float* const values = tiles.values(part);
        for (int64_t row = 0; row < part.rows; ++row, at += result.strides[across])
          write_values(values + row * part.pitch(), part.columns, m.accumulate, m.dtype, m.out, at);
      }
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain::simd {

std::unique_ptr<Kernel> make_map(const KernelSpec& spec) {
  const auto attrs = attrs_as<MapAttrs>(spec.attrs);
  std::vector<Shape> shapes;
  for (const TensorSpec& in : spec.in) shapes.push_back(in.shape);
  MapWalk of = walk_of(spec.out[0].shape, shapes, attrs);
  collapse(of.space, of.views);
  MapRun run{.walk = walk_over(attrs.formula, of.space, of.views, spec.in),
             .dtype = spec.out[0].dtype};
  run.across = run.walk.across();
  return kernel_of(
      [run, threads = spec.threads, n = elements(spec.out[0])](const KernelCall& call) {
        MapRun here = run;
        here.out = data(call.out, 0);
        here.accumulate = call.accumulate;
        here.walk.read(call.in);
        if (here.across)
          return parallel_ranges(threads, here.blocks(), 1, [&](int64_t begin, int64_t end) {
            DSTRAIN_BEST(map_blocks)(here, begin, end);
          });
        parallel_ranges(threads, n, kFlatGrain, [&](int64_t begin, int64_t end) {
          DSTRAIN_BEST(map_range)(here, begin, end);
        });
      });
}

}  // namespace dstrain::simd
#endif
