// A folded graph becomes a program.
#pragma once

#include "models/exported/lower/lowering.h"

namespace dstrain::exported {

// Emits the whole model: its nodes in order, in layers (blocks.h), then its losses. All sizes of the graph are known, for a
// batch of the builder's samples. Throws UserError for what cannot be computed.
void lower_graph(Builder& builder, const FoldedGraph& folded, const GraphFacts& facts);

}  // namespace dstrain::exported
