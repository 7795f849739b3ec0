// Graph: the program of an exported model as plain data. In a graph that was read, every tensor that a node takes is an input
// or an output of a node before it, names occur once, arguments have the types of their schemas, and what an archive leaves
// out because it is the default is filled in. Nodes change no tensor in place.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "models/exported/graph/argument.h"

namespace dstrain::exported {

struct OpSchema;

inline constexpr size_t kMaxRank = 8;

// A tensor of a graph. Strides and offset are in elements.
struct TensorInfo {
  std::string name;
  ScalarType type = ScalarType::f32;
  std::vector<Size> sizes, strides;
  Size offset;
  bool requires_grad = false;
};

// Returns whether a tensor has no element, in any batch.
inline bool is_empty(const TensorInfo& tensor) {
  return std::ranges::any_of(tensor.sizes,
                             [](const Size& size) { return size.is_fixed() && size.value() == 0; });
}

// A line of the user's program.
struct SourceLine {
  std::string file;
  int64_t line = 0;  // from 1; 0: not known
  std::string text;
};

// A number that an operator takes beside tensors.
using Scalar = std::variant<bool, int64_t, double>;

// An operator with its operands. The functions that return an argument throw InternalError if the operator has none of the
// name, or it is of another kind; the schema's types are checked when the graph is read.
struct Node {
  std::string name;
  std::string target;                // "aten.linear.default"
  const OpSchema* schema = nullptr;  // null: the operator is not known
  std::vector<std::pair<std::string, Argument>>
      arguments;                         // by the names of the schema, in its order
  std::vector<TensorRef> outputs;        // none where an operator returns None
  std::string module_path, module_type;  // "h.0.ln1", "torch.nn.modules.normalization.LayerNorm"
  SourceLine source;

  // Returns the argument, or null if the operator has none of the name.
  const Argument* find(std::string_view argument) const;
  bool has(std::string_view argument) const;  // and it is not None

  TensorRef tensor(std::string_view argument) const;  // none where it is None
  const std::vector<TensorRef>& tensors(std::string_view argument) const;
  int64_t whole(std::string_view argument) const;
  std::vector<int64_t> wholes(std::string_view argument) const;
  double real(std::string_view argument) const;
  bool flag(std::string_view argument) const;
  const std::string& text(std::string_view argument) const;
  ScalarType type(std::string_view argument) const;
  // Returns the number, also that of an argument that may be a tensor. Nothing if it is a tensor.
  std::optional<Scalar> scalar(std::string_view argument) const;
};

// What a tensor that a graph is given is.
enum class InputKind : uint8_t { parameter, buffer, constant, user };

// A tensor that a graph is given. Its name is that in the module's state ("h.0.ln1.weight"), of a user's input that of the
// argument ("idx").
struct GraphInput {
  InputKind kind = InputKind::user;
  TensorRef tensor;
  std::string name;
  bool persistent = true;  // a buffer: in the state dictionary
};

enum class OutputKind : uint8_t { user, buffer };

// A tensor that a graph gives back. The name of a user's output is its path in what the module returns ("loss", "0"), or
// the tensor's where it returns one tensor; that of a new value of a buffer is the buffer's.
struct GraphOutput {
  OutputKind kind = OutputKind::user;
  TensorRef tensor;
  std::string name;
};

// The values that a symbol may have.
struct SymbolRange {
  int64_t lowest = 0;
  std::optional<int64_t> highest;
};

struct Graph {
  std::vector<TensorInfo> tensors;
  std::vector<GraphInput> inputs;
  std::vector<Node> nodes;
  std::vector<GraphOutput> outputs;
  std::map<std::string, SymbolRange, std::less<>> symbols;
  std::string torch_version;

  const TensorInfo& tensor(TensorRef ref) const;
};

// Calls `visit(TensorRef&)` for each tensor that a node takes.
template <class NodeType, class Visit>
void for_each_operand(NodeType& node, Visit visit) {
  for (auto& [name, argument] : node.arguments) {
    if (auto* tensor = std::get_if<TensorRef>(&argument)) visit(*tensor);
    if (auto* tensors = std::get_if<std::vector<TensorRef>>(&argument))
      for (auto& tensor : *tensors)
        if (tensor) visit(tensor);
  }
}

// Returns 'node "view_1" (aten.view.default, module "h.0", models.py:45)'.
std::string describe(const Node& node);
std::string to_string(const std::vector<Size>& sizes);  // "(8*s27, 16)"

}  // namespace dstrain::exported
