// A folded graph becomes a program.
#pragma once

#include "models/exported/lower/lowering.h"

namespace dstrain::exported {

// Returns the graph with the nodes alone that the loss, its weight and the metrics depend on. Throws UserError as
// metric_outputs() and weight_output() do.
FoldedGraph trained_part(const FoldedGraph& folded, const GraphFacts& facts);

// Emits the whole model: its nodes in order, in layers (blocks.h), then its losses. All sizes of the graph are known, for a
// batch of the builder's samples. Throws UserError for what cannot be computed.
void lower_graph(Builder& builder, const FoldedGraph& folded, const GraphFacts& facts);

}  // namespace dstrain::exported
