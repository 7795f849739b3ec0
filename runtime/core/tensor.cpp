#include "runtime/core/tensor.h"

#include <fmt/core.h>

#include "runtime/core/error.h"

namespace dstrain {

void Shape::fail_full(int64_t dim) const {
  throw InternalError(
      fmt::format("a dimension of {} is added to the shape {}, which has {} already", dim,
                  to_string(*this), rank));
}

std::string to_string(const Shape& shape) {
  std::string text = "(";
  for (int i = 0; i < shape.rank; ++i) text += fmt::format("{}{}", i ? ", " : "", shape[i]);
  return text + ")";
}

}  // namespace dstrain
