// The losses of a graph: what its loss is a sum of.
#pragma once

#include <cstddef>
#include <vector>

#include "models/exported/graph/graph.h"

namespace dstrain::exported {

// A part of the loss: `weight` times a tensor.
struct LossTerm {
  TensorRef tensor;
  double weight = 1;
};

struct LossTerms {
  std::vector<LossTerm> terms;
  // The nodes that only add and scale terms, by their places. The program has the terms as losses of their own.
  std::vector<size_t> sums;
};

// Returns the output that is differentiated: the one named "loss", or the first one that is a fraction without dimensions.
// Throws UserError if there is none.
const GraphOutput& loss_output(const Graph& graph);

// Returns what the loss is a sum of: at most `most` terms. What is a metric, too, is not divided.
LossTerms loss_terms(const Graph& graph, size_t most, const std::vector<GraphOutput>& metrics = {});

}  // namespace dstrain::exported
