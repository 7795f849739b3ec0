// What the operators along the lines of a dimension have in common.
#pragma once

#include "models/exported/lower/lowering.h"

namespace dstrain::exported {

// Returns the lines of a tensor along a dimension.
Lines lines_along(const Shape& shape, int dimension);

// Returns a buffer that has the value's elements in order: of integers, where the type is one of integers.
BufferId elements_as(Lowering& lowering, Value value, ScalarType type);

}  // namespace dstrain::exported
