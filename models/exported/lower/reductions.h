// Sums, means and softmax of values.
#pragma once

#include <vector>

#include "models/exported/lower/lowering.h"

namespace dstrain::exported {

// Returns the numbers of all dimensions of a value.
std::vector<int> all_dimensions(const Value& x);
// Return the dimensions that an operator reduces, all where it says none, and whether it keeps them, of one element each.
std::vector<int> dimensions_of(Lowering& lowering, const Node& node, const Value& x);
bool keeps(const Node& node);

// Returns the mean over dimensions, f32.
Value mean_of(Lowering& lowering, const Node& node, const Value& x,
              const std::vector<int>& dimensions, bool keep);
// Returns the mean square of the distance from the mean, or the sum of these squares over n - `correction`, f32.
Value variance_of(Lowering& lowering, const Node& node, const Value& x, const Value& mean,
                  const std::vector<int>& dimensions, double correction, bool keep);
// Returns the softmax over a dimension, or its logarithm.
Value softmax_of(Lowering& lowering, const Node& node, const Value& x, int dimension);
Value log_softmax_of(Lowering& lowering, const Node& node, const Value& x, int dimension);

// Returns x times a number.
Value scaled(Value x, double factor);

}  // namespace dstrain::exported
