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
std::span<const LoweredOp> pool_operators();
std::span<const LoweredOp> recurrent_operators();
std::span<const LoweredOp> loss_operators();
std::span<const LoweredOp> sort_operators();
std::span<const LoweredOp> class_loss_operators();
std::span<const LoweredOp> function_operators();
std::span<const LoweredOp> scatter_operators();
std::span<const LoweredOp> bag_operators();
std::span<const LoweredOp> choice_operators();
std::span<const LoweredOp> resampling_operators();
std::span<const LoweredOp> einsum_operators();
std::span<const LoweredOp> replacement_operators();
std::span<const LoweredOp> random_operators();
std::span<const LoweredOp> scan_operators();

// Returns tensors one after the other along a dimension, which they have.
Value joined(Lowering& lowering, std::vector<Value> values, int dimension);

// Returns x with elements dropped by the counter, of rows of a sample each; x itself outside training.
Value dropped(Lowering& lowering, const Node& node, const Value& x, double p);

// Lets an operator add a tensor's own elements around it: `mode` is reflect, replicate or circular. Returns false at another.
bool pad_with_own(Lowering& lowering, const Node& node, std::string_view mode);

// Returns the operator, or null if it is not known here.
const LoweredOp* find_operator(std::string_view target);

// Throws UserError, which lists all operators of the graph that are not known here, with the modules and lines of the user's
// program that have them.
void check_operators(const Graph& graph);

}  // namespace dstrain::exported
