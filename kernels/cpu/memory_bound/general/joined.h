// What reductions make of two values.
#pragma once

#include <algorithm>
#include <limits>

#include "runtime/ir/views/general_attrs.h"

namespace dstrain::simd {

constexpr int64_t kRun = 256;  // terms of a run of a sum by rows

// Returns what is left of no values.
inline double none_of(Reduction kind) {
  const double infinity = std::numeric_limits<double>::infinity();
  return kind == Reduction::sum ? 0 : kind == Reduction::maximum ? -infinity : infinity;
}

// Returns what is left of two values; NaN, if one of them is.
inline double joined(Reduction kind, double a, double b) {
  if (kind == Reduction::sum) return a + b;
  if (a != a || b != b) return std::numeric_limits<double>::quiet_NaN();
  return kind == Reduction::maximum ? std::max(a, b) : std::min(a, b);
}

}  // namespace dstrain::simd
