// What general_bench times: general ops at sizes past the caches, each with what it is compared with.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/ir/kernel.h"

namespace dstrain::bench {

// The sizes of a product y (rows, out) = x (rows, in) w (out, in).
struct ProductSizes {
  int64_t rows, in, out;
};

struct GeneralCase {
  std::string name;  // what it is for: "row sum"
  OpKind op{};
  OpAttrs attrs{};
  std::vector<TensorSpec> in{}, out{};
  // Operands of indices have random numbers below this one.
  int64_t indices = 0;
  // Bytes that the operands have, but that need not be moved: padding of a table of which a part is read.
  int64_t unread = 0;
  // The product with as many FLOPs; none: it is compared with a copy of as many bytes.
  std::optional<ProductSizes> product{};
};

// Returns all cases of operands of one dtype.
std::vector<GeneralCase> general_cases(DType dtype);

}  // namespace dstrain::bench
