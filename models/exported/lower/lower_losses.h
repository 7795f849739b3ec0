// The losses of a program from those of a graph.
#pragma once

#include <vector>

#include "models/exported/lower/loss_mean.h"

namespace dstrain::exported {

class Lowering;

// Returns the nodes of the terms that are cross-entropies by classes. The program has an operation for these, which makes the
// gradient of the logits as well, so they come after all other nodes.
std::vector<const Node*> cross_entropies(const Graph& graph, const LossTerms& losses);

// Emits the losses, and lets those that are metrics, too, be reported as such.
void emit_losses(Lowering& lowering, const LossTerms& losses, const LossMean& mean,
                 const std::vector<GraphOutput>& metrics);

}  // namespace dstrain::exported
