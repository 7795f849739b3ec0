// The largest or smallest elements of a dimension, of which PyTorch takes the first one.
#pragma once

#include "models/exported/lower/lowering.h"

namespace dstrain::exported {

// Elements of a dimension, without it, and the places where they are, in integers of 32 bits.
struct Choice {
  Value element, place;
};

// Returns the largest or smallest elements of a dimension. Where several are equal, the first one is taken and has the
// gradient. NaN is one where the dimension has one; its place is the dimension's size.
Choice chosen(Lowering& lowering, const Node& node, Reduction kind, const Value& x, int dimension);

}  // namespace dstrain::exported
