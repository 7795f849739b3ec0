// The operators that become a program, by kind.
#pragma once

#include <span>
#include <string_view>

#include "models/exported/lower/lowering.h"

namespace dstrain::exported {

struct LoweredOp {
  std::string_view target;
  void (*lower)(Lowering&, const Node&);
};

std::span<const LoweredOp> pointwise_operators();
std::span<const LoweredOp> truth_operators();
std::span<const LoweredOp> view_operators();
std::span<const LoweredOp> join_operators();
std::span<const LoweredOp> reduction_operators();
std::span<const LoweredOp> product_operators();
std::span<const LoweredOp> norm_operators();
std::span<const LoweredOp> attention_operators();
std::span<const LoweredOp> lookup_operators();
std::span<const LoweredOp> convolution_operators();
std::span<const LoweredOp> recurrent_operators();
std::span<const LoweredOp> loss_operators();
std::span<const LoweredOp> sort_operators();

// Returns tensors one after the other along a dimension, which they have.
Value joined(Lowering& lowering, std::vector<Value> values, int dimension);

// Returns the operator, or null if it is not known here.
const LoweredOp* find_operator(std::string_view target);

// Throws UserError, which lists all operators of the graph that are not known here, with the modules and lines of the user's
// program that have them.
void check_operators(const Graph& graph);

}  // namespace dstrain::exported
