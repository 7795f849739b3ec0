// Gives the symbols of a graph values, and its sizes with them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/exported/graph/graph.h"

namespace dstrain::exported {

// The sizes that a user's input will have.
struct InputSizes {
  std::string name;
  std::vector<int64_t> sizes;
};

// Returns the values with which the user's inputs have these sizes. Every input of the graph must be listed. A symbol may be
// 1 where its range begins at 2: PyTorch lets ranges begin there whatever the model takes. Throws UserError, with the sizes
// of both, if an input cannot have them, and if they are out of a symbol's range.
SymbolValues solve_symbols(const Graph& graph, const std::vector<InputSizes>& inputs);

// Returns the graph with all sizes known. Throws UserError if one needs a symbol that has no value, because it depends on
// the data, or is negative or overflows.
Graph with_sizes(Graph graph, const SymbolValues& symbols);

}  // namespace dstrain::exported
