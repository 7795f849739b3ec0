// The layers of a graph: which modules become units of ZeRO, of recompute and of pipelines.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/exported/graph/graph.h"

namespace dstrain::exported {

// A layer. `number`: among the numbered ones, of the list of modules `stack`; -1: it is none of them, and `stack` is its name.
struct GraphLayer {
  std::string stack;
  int64_t number = -1;
  size_t first_node = 0;  // its nodes are those up to the next layer's
};

// Returns the layers of a graph, in the order of its nodes. The blocks of a list of modules are layers if all have parameters
// of the same names and shapes, and run one after the other, each once. Those of the list with the most parameters are
// numbered. `patterns` of module paths ("h.*", where a star goes up to the next point) say in their place which modules are
// blocks; those of a pattern are a list. Throws UserError for one that names no module, and for blocks of a pattern with
// different parameters, or which do not run one after the other.
std::vector<GraphLayer> layers_of(const Graph& graph,
                                  const std::vector<std::string>& patterns = {});

// The same for a program, whose layers have parameters: one that uses none of which it is the first to do so belongs to the one
// before, and at the beginning to the one behind.
std::vector<GraphLayer> program_layers(const Graph& graph,
                                       const std::vector<std::string>& patterns);

// Returns the layers of a graph of which `modules` are the numbered ones, in the order of its nodes: what is before them is
// the layer "inputs", what is behind them "outputs". Throws InternalError if a module has no node, or they come in another
// order.
std::vector<GraphLayer> numbered_layers(const Graph& graph,
                                        const std::vector<std::string>& modules);

}  // namespace dstrain::exported
