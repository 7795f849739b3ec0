// Computes the value of a node whose operands are known.
#pragma once

#include <string_view>
#include <vector>

#include "models/exported/fold/operands.h"

namespace dstrain::exported {

// Returns how an operator is computed, or null if it is not.
const EvaluatedOp* find_evaluated(std::string_view target);

// Returns all operators that are computed, by their targets.
const std::vector<EvaluatedOp>& evaluated_ops();

// Returns the values of a node's outputs. The caller must have values for all tensors that the node takes, but that of
// which only type and sizes are used. Throws UserError if they contradict what the graph says of the outputs, and LeftError if
// the limits do not allow it.
std::vector<HostTensor> evaluate(const EvaluatedOp& op, const Operands& operands);

}  // namespace dstrain::exported
