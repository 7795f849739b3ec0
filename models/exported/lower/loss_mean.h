// What the loss of a graph and its metrics are means over.
#pragma once

#include "models/exported/lower/loss_terms.h"
#include "models/exported/lower/value.h"
#include "runtime/ir/program.h"

namespace dstrain::exported {

struct GraphFacts;
class Lowering;

// What the loss and the metrics of a micro-batch are multiplied by, and divided by the sum of over the global batch.
struct LossMean {
  LossWeight by = LossWeight::samples;
  TensorRef weight{};  // the graph's own output that says it; none: what `by` says
  TensorRef labels{};  // without one, where targets count
};

// Returns the node that makes a tensor, or null.
const Node* maker_of(const Graph& graph, TensorRef ref);

// Returns whether a node is a mean or a sum of cross-entropies by classes, all of one weight, and whether it is the mean.
bool is_by_class(const Graph& graph, const Node& node);
bool is_mean(const Node& node);

// Returns the output that weighs the loss, by the name that the facts have; none where they have none. Throws UserError if
// the graph returns no such number.
TensorRef weight_output(const Graph& graph, const GraphFacts& facts);

// Returns over what the mean is taken. `training`: it is not for a validation.
LossMean loss_mean(const Graph& graph, const GraphFacts& facts, const LossTerms& losses,
                   bool training);

// Returns how many elements of integers are not negative, f32.
Value count_of(Lowering& lowering, const Node& node, const Value& ids);
// Returns a number times its weight, f32; 0 where the weight is 0, whatever the number.
Value weighed(Lowering& lowering, const Node& node, const Value& value, const Value& weight);

// Returns the nodes of the terms that are cross-entropies by classes. The program has an operation for these, which makes the
// gradient of the logits as well, so they come after all other nodes.
std::vector<const Node*> cross_entropies(const Graph& graph, const LossTerms& losses);

}  // namespace dstrain::exported
