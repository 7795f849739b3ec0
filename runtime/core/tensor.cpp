#include "runtime/core/tensor.h"

#include <fmt/core.h>

namespace dstrain {

std::string to_string(const Shape& shape) {
  std::string text = "(";
  for (int i = 0; i < shape.rank; ++i) text += fmt::format("{}{}", i ? ", " : "", shape[i]);
  return text + ")";
}

}  // namespace dstrain
