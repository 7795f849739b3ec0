// The losses of a program from those of a graph.
#pragma once

#include <vector>

#include "models/exported/lower/loss_terms.h"

namespace dstrain::exported {

class Lowering;

// Returns the nodes of the terms that are cross-entropies by classes. The program has an operation for these, which makes the
// gradient of the logits as well, so they come after all other nodes.
std::vector<const Node*> cross_entropies(const Graph& graph, const LossTerms& losses);

// Emits the losses.
void emit_losses(Lowering& lowering, const LossTerms& losses);

}  // namespace dstrain::exported
