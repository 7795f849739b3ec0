// Reads the program of an exported model.
#pragma once

#include <string>
#include <string_view>

#include "models/exported/graph/graph.h"

namespace dstrain::exported {

inline constexpr size_t kMostNodes = 250'000;

// What a user types to export a model that can be read; messages end with it.
inline constexpr std::string_view kExportAdvice =
    "export it with torch.export.export(model.train(), batch).run_decompositions({}) and write "
    "that with "
    "torch.export.save";

// Returns the program that `json` holds, the text of the file `file` ("model.pt2: models/model.json"). Nodes that compute
// sizes alone are left out, because sizes are expressions. Throws UserError if it is not one of schema version 8, if nodes
// change tensors in place or have graphs inside, and for whatever contradicts the promises of Graph.
Graph read_graph(std::string_view json, const std::string& file);

}  // namespace dstrain::exported
