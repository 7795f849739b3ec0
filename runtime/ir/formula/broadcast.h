// How the elements of an operand of `map` belong to those of the result.
#pragma once

#include <cstdint>

#include "runtime/core/tensor.h"

namespace dstrain {

enum class Broadcast : uint8_t {
  none,     // one each
  columns,  // one for each column: shape (C) or (1,C)
  rows,     // one for each row: shape (R,1)
  one,      // one for all
  impossible,
};

// Returns how the elements of `operand` belong to those of a result with rows and columns: the last dimension has columns.
inline Broadcast broadcast_of(const Shape& result, const Shape& operand) {
  const int64_t all = result.elements(), given = operand.elements(), columns = result[-1];
  if (given == all) return Broadcast::none;
  if (given == columns && operand[-1] == columns) return Broadcast::columns;
  if (columns > 0 && given == all / columns && operand[-1] == 1) return Broadcast::rows;
  return given == 1 ? Broadcast::one : Broadcast::impossible;
}

}  // namespace dstrain
