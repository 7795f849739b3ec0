// Folds what is constant in a graph: masks, tables of positions, arithmetic on indices.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "models/exported/exported_model.h"
#include "models/exported/fold/operands.h"

namespace dstrain::exported {

// A constant that stays in the graph: a node, or a buffer of the module.
struct LeftNode {
  std::string name, reason;
};

// A graph without its constant nodes.
struct FoldedGraph {
  Graph graph;
  Constants constants;  // of the tensors that nodes take or the graph gives back, and no node makes
  std::vector<LeftNode>
      left;  // for which the limits were too small, or without values in the archive
};

struct FoldOptions {
  // Whether buffers of the state dictionary that no step changes are constants. Not where a run takes other values for
  // them than the archive's.
  bool persistent_buffers = true;
  // Inputs of the user whose elements are known, by name, in order.
  std::map<std::string, std::vector<int64_t>, std::less<>> inputs = {};
  FoldLimits limits = {};
};

// Returns the graph in which nodes that depend on no user input that is not known, no parameter and changed buffer are values, and nodes that
// nothing depends on are left out, with PyTorch's checks of its own tensors and operators that give a tensor back as it is.
// `graph` is the model's, with all sizes known (with_sizes()). Nodes that cannot be computed stay. Throws UserError if the
// graph contradicts itself.
FoldedGraph fold(const ExportedModel& model, Graph graph, const FoldOptions& options = {});

}  // namespace dstrain::exported
