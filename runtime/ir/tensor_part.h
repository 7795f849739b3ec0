// TensorPart: the part of a parameter that a rank has where the ranks of a tensor group divide it among themselves, by rows
// or by columns. Which elements of the whole tensor it has follows from these few numbers, so files and checkpoints of any
// division can be read with any other.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "runtime/core/tensor.h"

namespace dstrain {

// Rows or columns are divided as evenly as can be: part p of P has those from floor(n p / P) to floor(n (p + 1) / P). In
// memory each part has as many as the largest: those that it lacks are zeros behind its own (padding).
struct TensorPart {
  enum class By : uint8_t { nothing, rows, columns };
  By by = By::nothing;  // nothing: the rank has the whole tensor
  int parts = 1, part = 0;
  // By rows: the rows consist of so many equal sections, as queries, keys and values of one product, each of which is
  // divided. More than one: `parts` divides their rows evenly.
  int64_t sections = 1;
  bool operator==(const TensorPart&) const = default;
};

// Elements of a part and of the whole tensor that follow one another in both.
struct PartRun {
  int64_t held = 0;   // the first one in the part's memory, row-major, with its padding
  int64_t whole = 0;  // the first one in the whole tensor, row-major
  int64_t count = 0;
};

// Returns why `whole` cannot be divided so, or an empty string: it is a scalar, empty, or a vector by columns, there is no
// such part, or the sections do not divide the rows.
std::string division_error(const TensorPart& part, const Shape& whole);

// Returns the shape of a part in memory, with padding. This and what follows throws InternalError where there is a
// division_error().
Shape held_shape(const TensorPart& part, const Shape& whole);

// Returns how many elements of the part's memory there are up to its last row of the whole tensor: rows of padding behind
// that are not counted, padding columns are, those of the last row too.
int64_t held_elements(const TensorPart& part, const Shape& whole);

// Returns how many elements of the whole tensor the part has.
int64_t own_elements(const TensorPart& part, const Shape& whole);

// Returns which element of the whole tensor element `held` of the part's memory is; -1: it is padding.
int64_t whole_element(const TensorPart& part, const Shape& whole, int64_t held);

// Calls `take` for the elements [begin, begin + count) of a part's memory that are elements of the whole tensor, in
// ascending order, in runs that are as long as can be.
void for_runs(const TensorPart& part, const Shape& whole, int64_t begin, int64_t count,
              const std::function<void(const PartRun&)>& take);

// Calls `take` for the elements [begin, begin + count) of the whole tensor that the part has, in ascending order, in runs
// that are as long as can be.
void for_runs_within(const TensorPart& part, const Shape& whole, int64_t begin, int64_t count,
                     const std::function<void(const PartRun&)>& take);

}  // namespace dstrain
