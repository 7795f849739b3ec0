// InputTensor: samples of an input of the model.
#pragma once

#include <string_view>

#include "runtime/core/input_role.h"
#include "runtime/core/tensor.h"

namespace dstrain {

// Where samples of an input are: (count, shape of a sample).
struct InputTensor {
  std::string_view name;
  InputRole role = InputRole::features;
  Tensor tensor;
};

}  // namespace dstrain
