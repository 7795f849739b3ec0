// How the elements of an operand of `map` belong to those of the result.
#pragma once

#include <cstdint>

#include "runtime/core/tensor.h"
#include "runtime/ir/views/view.h"

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

// Returns the view of such an operand, of a space of the result's rows and columns.
inline View view_by_row(Broadcast way, const Shape& space) {
  View view;
  if (way == Broadcast::none) view = dense_view(space);
  if (way == Broadcast::rows) view.strides = {1, 0};
  if (way == Broadcast::columns) view.strides = {0, 1};
  return view;
}

}  // namespace dstrain
