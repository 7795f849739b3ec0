// PyTorch's rules for the type of a result.
#pragma once

#include <vector>

#include "models/exported/fold/host_tensor.h"

namespace dstrain::exported {

// A tensor, or a number that an operator takes in its place.
struct Operand {
  HostTensor tensor;
  bool is_number = false;
};

// Returns the smallest type that both fit into by PyTorch's table.
ScalarType promoted(ScalarType a, ScalarType b);

// Returns the type in which an operator combines these: tensors with dimensions count before those without, and these before
// numbers, which decide only between truth values, whole numbers and fractions.
ScalarType result_type(const std::vector<Operand>& operands);

}  // namespace dstrain::exported
