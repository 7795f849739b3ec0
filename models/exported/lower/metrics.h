// The metrics of a graph: numbers that it returns beside its loss.
#pragma once

#include <string>
#include <vector>

#include "models/exported/lower/loss_mean.h"

namespace dstrain::exported {

struct GraphFacts;
class Lowering;

// A scalar that the graph returns beside its loss and cannot be computed, and why.
struct LostMetric {
  std::string name, reason;
};

// Returns what the user's module returns without dimensions, but for its loss and what weighs it. `lost` receives those that
// need an operator that is not supported, and that the loss does without. Throws UserError if there are too many, or one has
// a name that metrics of every run have.
std::vector<GraphOutput> metric_outputs(const Graph& graph, const GraphFacts& facts,
                                        std::vector<LostMetric>* lost = nullptr);

// Emits a metric, whose tensor must have a value.
void emit_metric(Lowering& lowering, const GraphOutput& metric, const LossMean& mean);

}  // namespace dstrain::exported
