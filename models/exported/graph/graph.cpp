#include "models/exported/graph/graph.h"

#include <fmt/format.h>

#include "runtime/core/error.h"
#include "runtime/core/formats/shown_text.h"

namespace dstrain::exported {
namespace {

const Argument& argument_of(const Node& node, std::string_view name) {
  const Argument* argument = node.find(name);
  check(argument != nullptr, "{} has no argument \"{}\"", describe(node), name);
  return *argument;
}

template <class T>
const T& typed(const Node& node, std::string_view name) {
  const Argument& argument = argument_of(node, name);
  const T* value = std::get_if<T>(&argument);
  check(value != nullptr, "argument \"{}\" of {} is {}", name, describe(node), kind_of(argument));
  return *value;
}

}  // namespace

const Argument* Node::find(std::string_view argument) const {
  for (const auto& given : arguments)
    if (given.first == argument) return &given.second;
  return nullptr;
}

bool Node::has(std::string_view argument) const {
  const Argument* value = find(argument);
  return value && !std::holds_alternative<std::monostate>(*value);
}

TensorRef Node::tensor(std::string_view argument) const {
  if (std::holds_alternative<std::monostate>(argument_of(*this, argument))) return {};
  return typed<TensorRef>(*this, argument);
}

const std::vector<TensorRef>& Node::tensors(std::string_view argument) const {
  return typed<std::vector<TensorRef>>(*this, argument);
}

int64_t Node::whole(std::string_view argument) const {
  return typed<Size>(*this, argument).value();
}

std::vector<int64_t> Node::wholes(std::string_view argument) const {
  std::vector<int64_t> values;
  for (const Size& size : typed<std::vector<Size>>(*this, argument)) values.push_back(size.value());
  return values;
}

double Node::real(std::string_view argument) const {
  return typed<double>(*this, argument);
}

bool Node::flag(std::string_view argument) const {
  return typed<bool>(*this, argument);
}

const std::string& Node::text(std::string_view argument) const {
  return typed<std::string>(*this, argument);
}

ScalarType Node::type(std::string_view argument) const {
  return typed<ScalarType>(*this, argument);
}

std::optional<Scalar> Node::scalar(std::string_view argument) const {
  const Argument& value = argument_of(*this, argument);
  if (std::holds_alternative<TensorRef>(value)) return std::nullopt;
  if (const bool* flag = std::get_if<bool>(&value)) return *flag;
  if (const double* real = std::get_if<double>(&value)) return *real;
  return typed<Size>(*this, argument).value();
}

const TensorInfo& Graph::tensor(TensorRef ref) const {
  return tensors.at(static_cast<size_t>(ref.id));
}

std::string describe(const Node& node) {
  std::string text = fmt::format("node \"{}\" ({}", node.name, shown_text(node.target));
  if (!node.module_path.empty())
    text += fmt::format(", module \"{}\"", shown_text(node.module_path));
  if (node.source.line > 0)
    text += fmt::format(", {}:{}", shown_text(node.source.file), node.source.line);
  return text + ")";
}

std::string to_string(const std::vector<Size>& sizes) {
  std::vector<std::string> texts;
  for (const Size& size : sizes) texts.push_back(to_string(size));
  return fmt::format("({})", fmt::join(texts, ", "));
}

}  // namespace dstrain::exported
