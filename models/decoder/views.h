// Views that several parts of decoders read through.
#pragma once

#include <cstddef>

#include "runtime/ir/views/view.h"

namespace dstrain::models {

// Returns the view of a row of values that are the same in all dimensions but one.
inline View along(int dimension) {
  View view;
  view.strides[static_cast<size_t>(dimension)] = 1;
  return view;
}

}  // namespace dstrain::models
