// Reads what an archive's graph is given and gives back.
#pragma once

#include <vector>

#include "models/exported/graph/graph.h"
#include "models/exported/read/read_values.h"
#include "models/exported/text/json_field.h"

namespace dstrain::exported {

// Both take the member graph_module. Numbers, texts and None among the user's inputs and outputs are left out.
// Throws UserError for what is neither a parameter, a buffer, a constant nor a tensor of the user.
std::vector<GraphInput> read_inputs(const JsonField& module, const NamedValues& values);
// Throws UserError for graphs that give back gradients or change parameters or inputs.
std::vector<GraphOutput> read_outputs(const JsonField& module, const NamedValues& values);

}  // namespace dstrain::exported
