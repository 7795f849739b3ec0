// Reads the names and values of an archive's graph: tensors with their sizes, symbolic numbers, arguments.
#pragma once

#include <map>
#include <string>
#include <unordered_map>

#include "models/exported/graph/graph.h"
#include "models/exported/text/json_field.h"

namespace dstrain::exported {

// Returns a size, {"as_int": 16} or {"as_expr": {"expr_str": "..."}}.
Size read_size(const JsonField& field);

// Returns type, sizes and strides of a tensor, whose name is `name`. Throws UserError for layouts other than strided, types
// that are not known, more than kMaxRank dimensions, and sizes that are negative or whose product overflows.
TensorInfo read_tensor(const JsonField& meta, const std::string& name);

// The tensors and symbolic numbers that a graph names.
class NamedValues {
 public:
  // Reads the members tensor_values and sym_int_values of a graph. A number that cannot be read is an error where it is
  // taken: PyTorch's own checks of sizes compute remainders.
  explicit NamedValues(const JsonField& graph);

  // Returns the tensor of {"name": "view_1"}. Throws UserError if the graph does not describe it.
  TensorRef tensor(const JsonField& argument) const;
  // Returns an argument, an object of one member that says its kind. Throws UserError for kinds that no operator that can
  // be trained has: graphs, objects of the user's own, complex numbers.
  Argument argument(const JsonField& field) const;
  // Whether the argument is a symbolic number or truth value.
  static bool is_symbolic(const JsonField& argument);

  const std::vector<TensorInfo>& tensors() const { return tensors_; }

 private:
  TensorRef optional_tensor(const JsonField& field) const;
  Size symbolic(const JsonField& field) const;

  std::vector<TensorInfo> tensors_;
  std::unordered_map<std::string, int32_t> ids_;
  std::unordered_map<std::string, Size> numbers_;
  std::unordered_map<std::string, std::string> unreadable_;  // numbers, and what is wrong with them
};

}  // namespace dstrain::exported
