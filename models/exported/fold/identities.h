// Finds operators that give a tensor's own values back.
#pragma once

#include "models/exported/graph/graph.h"

namespace dstrain::exported {

// Drops from a list that is joined the tensors without elements: caches of keys and values begin with one. Returns the tensors
// that were dropped.
std::vector<TensorRef> drop_empty_parts(const Graph& graph, Node& node);

// Returns the tensor whose values, type and sizes the node's only output has, whatever they are; none if there is no such: a
// copy, a conversion to its own type, a view with its own sizes. All sizes of the graph must be known.
TensorRef identity_of(const Graph& graph, const Node& node);

}  // namespace dstrain::exported
