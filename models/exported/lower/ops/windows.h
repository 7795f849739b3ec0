// The windows of convolutions and pools.
#pragma once

#include <cstdint>
#include <vector>

#include "models/exported/lower/lowering.h"

namespace dstrain::exported {

// The windows of x (samples, channels, sizes...) over its last dimensions, with channels last.
struct Windows {
  WindowAttrs attrs{};
  int dimensions = 0;
};

// Returns the number of an argument's list for a dimension, which may be one for all.
inline int64_t number_at(const std::vector<int64_t>& list, int dimension) {
  return list.size() == 1 ? list[0] : list.at(static_cast<size_t>(dimension));
}

// Returns the windows of an operator whose operand and result have these shapes. Throws UserError about other than 1 to 3
// dimensions that windows have.
Windows windows_of(const Node& node, const Shape& x, const std::vector<int64_t>& kernel,
                   const std::vector<int64_t>& stride, const std::vector<int64_t>& padding,
                   const std::vector<int64_t>& dilation, const Shape& result);

// Returns x (samples, channels, sizes...) with channels last.
Value channels_last(const Value& x);

}  // namespace dstrain::exported
