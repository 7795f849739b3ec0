// Loads operands of a walk into tiles: runs along the last dimension, or rectangles of two dimensions for operands
// whose elements lie side by side along another one. Included once per Highway target, hence the toggled include guard.
#if defined(DSTRAIN_SIMD_OPERAND_TILES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DSTRAIN_SIMD_OPERAND_TILES_INL_H
#undef DSTRAIN_SIMD_OPERAND_TILES_INL_H
#else
#define DSTRAIN_SIMD_OPERAND_TILES_INL_H
#endif

#include "hwy/cache_control.h"
#include "kernels/cpu/memory_bound/general/eight-inl.h"
#include "kernels/cpu/memory_bound/general/walk.h"
#include "kernels/cpu/memory_bound/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

// Returns the element of an operand that belongs to an index, as if the view had no bounds.
inline int64_t element_of(const View& view, const Shape& space, const View::Numbers& index) {
  int64_t element = view.offset;
  for (int d = 0; d < space.rank; ++d)
    element += index[static_cast<size_t>(d)] * view.strides[static_cast<size_t>(d)];
  return element;
}

// A run of indices along the last dimension: where its first element is, and which of its indices have one.
struct ViewRun {
  int64_t from = 0;
  int64_t begin = 0, end = 0;  // within the run
};

// Sets which of the `length` indices of a run from `index` on have an element.
SIMD_FN void set_bounds(const View& view, int last, const View::Numbers& index, int64_t length,
                        ViewRun& run) {
  const auto l = static_cast<size_t>(last);
  run.begin = std::clamp<int64_t>(view.begin[l] - index[l], 0, length);
  run.end = length;
  if (view.end[l] != View::kAll)
    run.end = std::clamp<int64_t>(view.end[l] - index[l], run.begin, length);
  for (size_t d = 0; d < l; ++d)
    if (index[d] < view.begin[d] || index[d] >= view.end[d]) run.end = run.begin;
}

// Calls f(place in the tile, length, run) for each run of the n > 0 indices of the space from `index` on.
template <class F>
SIMD_FN void for_runs(const Shape& space, const WalkOperand& operand, View::Numbers index,
                      int64_t n, const F& f) {
  const View& view = operand.view;
  const auto last = static_cast<size_t>(space.rank - 1);
  int64_t from = element_of(view, space, index);
  for (int64_t done = 0;;) {
    const int64_t length = std::min(n - done, space.dims[last] - index[last]);
    ViewRun run{.from = from, .begin = 0, .end = length};
    if (operand.bounded) set_bounds(view, space.rank - 1, index, length, run);
    f(done, length, run);
    done += length;
    if (done == n) return;
    from += length * view.strides[last];
    index[last] = space.dims[last];
    for (size_t d = last; d > 0 && index[d] == space.dims[d]; --d) {
      from += view.strides[d - 1] - view.strides[d] * space.dims[d];
      index[d] = 0;
      ++index[d - 1];
    }
  }
}

inline float float_of(int32_t x) {
  return static_cast<float>(x);
}
template <class T>
SIMD_FN float float_of(T x) {
  return to_float(x);
}

SIMD_FN void load_run(const int32_t* from, int64_t stride, int64_t n, float* to) {
  int64_t i = 0;
  if (stride == 1)
    for (; i + kPack <= n; i += kPack) {
      SIMD_UNROLL
      for (int k = 0; k < kParts; ++k)
        hn::StoreU(hn::ConvertTo(DF(), hn::LoadU(DI(), from + i + k * kLanes)), DF(),
                   to + i + k * kLanes);
    }
  for (; i < n; ++i) to[i] = static_cast<float>(from[i * stride]);
}

// Tiles are written in order and in whole packs: what follows n elements is 0, or written next.
template <class T>
SIMD_FN void load_run(const T* from, int64_t stride, int64_t n, float* to) {
  if (stride == 0) {
    const Pack value = all(to_float(*from));
    return for_packs(0, n,
                     [=](int64_t i, auto lanes) SIMD_INLINE { store(keep(lanes, value), to + i); });
  }
  if (stride == 1)
    return for_packs(
        0, n, [=](int64_t i, auto lanes) SIMD_INLINE { store(load(from + i, lanes), to + i); });
  for (int64_t i = 0; i < n; ++i) to[i] = to_float(from[i * stride]);
}

// Calls f(T{}) with the element type T of an operand.
template <class F>
SIMD_FN void with_operand_type(DType dtype, const F& f) {
  if (dtype == DType::i32) return f(int32_t{});
  with_type(dtype, f);
}

// The same of an operand's elements from number `from` on.
HWY_NOINLINE void load_run(const WalkOperand& operand, int64_t from, int64_t stride, int64_t n,
                           float* to) {
  with_operand_type(operand.dtype, [&](auto type) SIMD_INLINE {
    load_run(static_cast<const decltype(type)*>(operand.data) + from, stride, n, to);
  });
}

SIMD_FN void fill(float value, int64_t n, float* to) {
  for (int64_t i = 0; i < n; i += kPack) store(all(value), to + i);
}

// Loads `length` elements along the last dimension; those that the operand has not are 0.
template <class T>
SIMD_FN void load_bounded(const T* data, int64_t stride, int64_t length, const ViewRun& run,
                          float* to) {
  if (run.end - run.begin < length) fill(0, length, to);
  if (run.begin < run.end)
    load_run(data + run.from + run.begin * stride, stride, run.end - run.begin, to + run.begin);
}

constexpr int64_t kRowsAhead = 16, kColumnElementsAhead = 32;  // that are fetched into the caches

template <class T>
SIMD_FN void prefetch_run(const T* from, int64_t length) {
  constexpr auto kLine = static_cast<int64_t>(64 / sizeof(T));
  for (int64_t i = 0; i < length; i += kLine) hwy::Prefetch(from + i);
}

// Loads the operand's elements at n indices of the space, from `index` on. Rows that do not follow each other in memory are
// fetched before they are needed: processors foresee only what is contiguous.
HWY_NOINLINE void load_operand(const Shape& space, const WalkOperand& operand,
                               const View::Numbers& index, int64_t n, float* to) {
  const View& view = operand.view;
  const auto last = static_cast<size_t>(space.rank - 1);
  const int64_t stride = view.strides[last];
  const bool walks_rows = last > 0 && stride == 1 && view.strides[last - 1] != space.dims[last];
  with_operand_type(operand.dtype, [&](auto type) SIMD_INLINE {
    const auto* const data = static_cast<const decltype(type)*>(operand.data);
    const int64_t row = walks_rows ? view.strides[static_cast<size_t>(space.rank - 2)] : 0;
    for_runs(space, operand, index, n, [&](int64_t place, int64_t length, const ViewRun& run) {
      if (row != 0 && length < n) prefetch_run(data + run.from + kRowsAhead * row, length);
      load_bounded(data, stride, length, run, to + place);
    });
  });
}

SIMD_FN void write_inside(int64_t length, const ViewRun& run, float* to) {
  fill(0, length, to);
  for_packs(run.begin, run.end,
            [=](int64_t i, auto lanes) SIMD_INLINE { store(keep(lanes, all(1)), to + i); });
}

// The same of 1 where the operand has an element, else 0.
void load_inside(const Shape& space, const WalkOperand& operand, const View::Numbers& index,
                 int64_t n, float* to) {
  for_runs(space, operand, index, n, [&](int64_t place, int64_t length, const ViewRun& run) {
    write_inside(length, run, to + place);
  });
}

// A part of two dimensions of the space: rows along `across`, and columns along the last one.
struct Rectangle {
  int across = 0;
  View::Numbers index{};  // of its first element
  int64_t rows = 0, columns = 0;

  // Returns how far apart its rows are in a tile: whole packs.
  int64_t pitch() const { return (columns + kPack - 1) / kPack * kPack; }
};

// Loads a rectangle's elements from columns that are `stride` apart.
template <class T>
SIMD_FN void load_columns(const T* from, int64_t stride, const Rectangle& part, float* to) {
  const int64_t pitch = part.pitch();
  int64_t rows = 0, columns = 0;  // what is loaded in eights
#if HWY_TARGET != HWY_SCALAR
  rows = part.rows / kEight * kEight;
  columns = part.columns / kEight * kEight;
  constexpr auto kLine = static_cast<int64_t>(64 / sizeof(T));
  for (int64_t c = 0; c < columns; c += kEight) {
    for (int64_t r = 0; r < rows; r += kEight) {
      const T* const here = from + r + c * stride;
      if (r % kLine == 0)
        for (int64_t i = 0; i < kEight; ++i)
          hwy::Prefetch(here + i * stride + kColumnElementsAhead);
      V8 x[kEight];
      load_eight_by_eight(here, stride, x);
      for (int i = 0; i < kEight; ++i) hn::StoreU(x[i], D8(), to + (r + i) * pitch + c);
    }
  }
#endif
  for (int64_t r = 0; r < part.rows; ++r)
    for (int64_t c = r < rows ? columns : 0; c < part.columns; ++c)
      to[r * pitch + c] = float_of(from[r + c * stride]);
}

// Calls f(row, run) for each row of a rectangle.
template <class F>
SIMD_FN void for_rows(const Shape& space, const WalkOperand& operand, const Rectangle& part,
                      const F& f) {
  const View& view = operand.view;
  const auto d = static_cast<size_t>(part.across);
  View::Numbers index = part.index;
  ViewRun run{.from = element_of(view, space, index), .begin = 0, .end = part.columns};
  for (int64_t row = 0; row < part.rows; ++row) {
    if (operand.bounded) set_bounds(view, space.rank - 1, index, part.columns, run);
    f(row, run);
    run.from += view.strides[d];
    ++index[d];
  }
}

// Loads the operand's elements of a rectangle.
HWY_NOINLINE void load_rectangle(const Shape& space, const WalkOperand& operand,
                                 const Rectangle& part, float* to) {
  const View& view = operand.view;
  const int64_t stride = view.strides[static_cast<size_t>(space.rank - 1)];
  const bool by_column = stride != 0 && stride != 1 && !operand.bounded &&
                         view.strides[static_cast<size_t>(part.across)] == 1;
  with_operand_type(operand.dtype, [&](auto type) SIMD_INLINE {
    const auto* const data = static_cast<const decltype(type)*>(operand.data);
    if (by_column)
      return load_columns(data + element_of(view, space, part.index), stride, part, to);
    const int64_t ahead = kRowsAhead * view.strides[static_cast<size_t>(part.across)];
    for_rows(space, operand, part, [&](int64_t row, const ViewRun& run) {
      if (stride == 1) prefetch_run(data + run.from + ahead, part.columns);
      load_bounded(data, stride, part.columns, run, to + row * part.pitch());
    });
  });
}

// The same of 1 where the operand has an element, else 0.
void load_inside(const Shape& space, const WalkOperand& operand, const Rectangle& part, float* to) {
  for_rows(space, operand, part, [&](int64_t row, const ViewRun& run) {
    write_inside(part.columns, run, to + row * part.pitch());
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#endif
