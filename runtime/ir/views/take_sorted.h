// How values come from what a sort says: a take of the elements that it names.
#pragma once

#include "runtime/ir/views/general_attrs.h"

namespace dstrain {

// Returns the attributes of the take that reads the elements which a sort of `elements` elements names, in its order.
inline TakeAttrs take_sorted(const SortAttrs& sort, int64_t elements) {
  const auto [size, apart] = sort.lines;
  const Shape space{elements / size / apart, sort.kept, apart};
  return {.space = space,
          .table = {.strides = {size * apart, 0, 1}},
          .indices = {{.view = dense_view(space), .stride = apart, .size = size}}};
}

}  // namespace dstrain
