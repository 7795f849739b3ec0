// Reads the nodes of an archive's graph.
#pragma once

#include <string>
#include <vector>

#include "models/exported/graph/graph.h"
#include "models/exported/read/read_values.h"
#include "models/exported/text/json_field.h"

namespace dstrain::exported {

// Returns the nodes that compute tensors, in their order. `nodes` is the list of the archive, `file` names it in messages.
// Throws UserError for nodes that change tensors in place or have graphs inside, with how many there are, and for arguments
// that contradict their schemas.
std::vector<Node> read_nodes(const JsonField& nodes, const NamedValues& values,
                             const std::string& file);

}  // namespace dstrain::exported
