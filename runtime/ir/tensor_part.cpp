#include "runtime/ir/tensor_part.h"

#include <algorithm>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

using By = TensorPart::By;

// Returns floor(n * part / parts), without an overflow.
int64_t first_of(int64_t n, int part, int parts) {
  return n / parts * part + n % parts * part / parts;
}

int64_t largest(int64_t n, int parts) {
  return n / parts + (n % parts > 0 ? 1 : 0);
}

// A part as runs of equal length: run i begins at element i * held_stride of the part's memory and at element
// first + i * whole_stride of the whole tensor.
struct Runs {
  int64_t count = 1, length = 0;
  int64_t held_stride = 0;
  int64_t first = 0, whole_stride = 0;
};

Runs runs_of(const TensorPart& part, const Shape& whole) {
  const int64_t all = whole.elements();
  const std::string error = division_error(part, whole);
  check(error.empty(), "{}", error);
  if (part.by == By::nothing)
    return {.length = all, .held_stride = all, .first = 0, .whole_stride = all};
  if (part.by == By::columns) {
    const int64_t columns = whole[-1];
    const int64_t begin = first_of(columns, part.part, part.parts);
    return {.count = all / columns,
            .length = first_of(columns, part.part + 1, part.parts) - begin,
            .held_stride = largest(columns, part.parts),
            .first = begin,
            .whole_stride = columns};
  }
  const int64_t row = all / whole[0];
  const int64_t rows = whole[0] / part.sections;
  const int64_t begin = first_of(rows, part.part, part.parts);
  return {.count = part.sections,
          .length = (first_of(rows, part.part + 1, part.parts) - begin) * row,
          .held_stride = largest(rows, part.parts) * row,
          .first = begin * row,
          .whole_stride = rows * row};
}

// The same with as few runs as can be: where a part has whole rows, or all sections, they follow one another.
Runs joined_runs_of(const TensorPart& part, const Shape& whole) {
  Runs runs = runs_of(part, whole);
  if (runs.length == runs.held_stride && runs.length == runs.whole_stride) {
    runs.length *= runs.count;
    runs.held_stride = runs.whole_stride = runs.length;
    runs.count = 1;
  }
  return runs;
}

// Calls `take` for the elements [begin, end) that lie in runs, where run i has elements [first + i * stride,
// first + i * stride + length). `take` receives the number of the run, and the first element and their number in it.
template <class Take>
void in_runs(const Runs& runs, int64_t first, int64_t stride, int64_t begin, int64_t end,
             const Take& take) {
  if (stride == 0 || runs.length == 0) return;
  for (int64_t i = std::max<int64_t>(0, (begin - first) / stride); i < runs.count; ++i) {
    const int64_t at = first + i * stride;
    if (at >= end) return;
    const int64_t from = std::max(begin, at), until = std::min(end, at + runs.length);
    if (from < until) take(i, from - at, until - from);
  }
}

}  // namespace

std::string division_error(const TensorPart& part, const Shape& whole) {
  if (part.by == By::nothing) return {};
  if (part.parts < 1 || part.part < 0 || part.part >= part.parts)
    return fmt::format("there is no part {} of {}", part.part, part.parts);
  if (whole.rank == 0 || whole.elements() == 0)
    return fmt::format("the tensor {} has no rows and columns to divide", to_string(whole));
  if (part.by == By::columns && whole.rank == 1)
    return fmt::format("the vector {} has no columns to divide", to_string(whole));
  if (part.by == By::columns && part.sections != 1)
    return fmt::format("columns of {} are divided in {} sections, expected 1", to_string(whole),
                       part.sections);
  if (part.sections < 1 || whole[0] % part.sections != 0 ||
      (part.sections > 1 && whole[0] / part.sections % part.parts != 0))
    return fmt::format("{} sections of the rows of {} are not divided evenly among {}",
                       part.sections, to_string(whole), part.parts);
  return {};
}

Shape held_shape(const TensorPart& part, const Shape& whole) {
  Shape shape = whole;
  const Runs runs = runs_of(part, whole);
  if (part.by == By::columns) shape.dims[static_cast<size_t>(whole.rank - 1)] = runs.held_stride;
  if (part.by == By::rows)
    shape.dims[0] = runs.count * runs.held_stride / (whole.elements() / whole[0]);
  return shape;
}

int64_t held_elements(const TensorPart& part, const Shape& whole) {
  const Runs runs = runs_of(part, whole);
  return part.by == By::columns ? runs.count * runs.held_stride
                                : (runs.count - 1) * runs.held_stride + runs.length;
}

int64_t own_elements(const TensorPart& part, const Shape& whole) {
  const Runs runs = runs_of(part, whole);
  return runs.count * runs.length;
}

void for_runs(const TensorPart& part, const Shape& whole, int64_t begin, int64_t count,
              const std::function<void(const PartRun&)>& take) {
  const Runs runs = joined_runs_of(part, whole);
  in_runs(runs, 0, runs.held_stride, begin, begin + count, [&](int64_t i, int64_t at, int64_t n) {
    take({.held = i * runs.held_stride + at,
          .whole = runs.first + i * runs.whole_stride + at,
          .count = n});
  });
}

int64_t whole_element(const TensorPart& part, const Shape& whole, int64_t held) {
  int64_t element = -1;
  for_runs(part, whole, held, 1, [&element](const PartRun& run) { element = run.whole; });
  return element;
}

void for_runs_within(const TensorPart& part, const Shape& whole, int64_t begin, int64_t count,
                     const std::function<void(const PartRun&)>& take) {
  const Runs runs = joined_runs_of(part, whole);
  in_runs(runs, runs.first, runs.whole_stride, begin, begin + count,
          [&](int64_t i, int64_t at, int64_t n) {
            take({.held = i * runs.held_stride + at,
                  .whole = runs.first + i * runs.whole_stride + at,
                  .count = n});
          });
}

}  // namespace dstrain
