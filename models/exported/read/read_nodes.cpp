#include "models/exported/read/read_nodes.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "models/exported/graph/op_schemas.h"
#include "models/exported/read/read_graph.h"
#include "runtime/core/formats/shown_text.h"

namespace dstrain::exported {
namespace {

constexpr std::string_view kOps = "torch.ops.";
constexpr size_t kMostArguments = 100;

// Returns the part of "aten.relu_.default" before its overload, without the namespace: "relu_".
std::string_view operator_name(std::string_view target) {
  const size_t begin = target.find('.');
  if (begin == std::string_view::npos) return target;
  return target.substr(begin + 1, target.find('.', begin + 1) - begin - 1);
}

// PyTorch's names of what changes its operand end with an underscore (relu_), those of Python's operators with two
// (__and__), of which some change theirs (__iand__).
bool changes_operand(std::string_view target) {
  const std::string_view name = operator_name(target);
  if (name.ends_with("__"))
    return name == "__iand__" || name == "__ior__" || name == "__ixor__" || name == "__ilshift__" ||
           name == "__irshift__";
  return name.ends_with('_');
}

// The module in which a node was made: the last of "KEY,PATH,TYPE;KEY,PATH,TYPE". A module that is called again has a path
// with @1.
void read_module(std::string_view stack, Node& node) {
  const std::string_view last = stack.substr(stack.rfind(';') + 1);
  const size_t type = last.rfind(',');
  if (type == std::string_view::npos || type == 0) return;
  const size_t path = last.rfind(',', type - 1);
  if (path == std::string_view::npos) return;
  const std::string_view text = last.substr(path + 1, type - path - 1);
  node.module_path = text.substr(0, text.find('@'));
  node.module_type = last.substr(type + 1);
}

// Returns the first line of a text, without leading blanks, and drops it from the text.
std::string_view take_line(std::string_view& text) {
  std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(line.size() + 1, text.size()));
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  return line;
}

// Reads 'File "models.py", line 45, in forward'; line 0 if it is another.
SourceLine read_frame(std::string_view text) {
  constexpr std::string_view start = "File \"", middle = "\", line ";
  SourceLine source;
  const size_t end = text.find(middle);
  if (!text.starts_with(start) || end == std::string_view::npos) return source;
  const std::string_view number = text.substr(end + middle.size());
  std::from_chars(number.data(), number.data() + number.size(), source.line);
  source.file = text.substr(start.size(), end - start.size());
  return source;
}

// Returns the innermost line that is not of an installed package, or else the innermost.
SourceLine read_source_line(std::string_view trace) {
  SourceLine source;
  bool own = false;
  while (!trace.empty()) {
    SourceLine frame = read_frame(take_line(trace));
    if (frame.line <= 0) continue;
    const bool installed = frame.file.find("site-packages/") != std::string::npos ||
                           frame.file.find("dist-packages/") != std::string::npos;
    if (own && installed) continue;
    own = own || !installed;
    std::string_view rest = trace;
    frame.text = take_line(rest);
    source = std::move(frame);
  }
  return source;
}

// Reads what is said of a node before its operands: operator, name, module, source line.
Node read_head(const JsonField& field) {
  Node node;
  node.target = field["target"].name();
  if (node.target.starts_with(kOps)) node.target.erase(0, kOps.size());
  node.schema = find_schema(node.target);
  const std::optional<JsonField> metadata = field.find("metadata");
  if (const auto stack = metadata ? metadata->find("nn_module_stack") : std::nullopt)
    read_module(stack->text(), node);
  if (const auto trace = metadata ? metadata->find("stack_trace") : std::nullopt)
    node.source = read_source_line(trace->text());
  if (const auto name = field.find("name")) node.name = name->name();
  return node;
}

// Nodes of a kind that cannot be read: how many there are, and the first.
struct Refused {
  int64_t count = 0;
  std::string first;

  void add(const Node& node) {
    if (count++ == 0) first = describe(node);
  }
};

class NodeReader {
 public:
  NodeReader(const NamedValues& values, const std::string& file) : values_(values), file_(file) {}

  std::vector<Node> read(const JsonField& fields) {
    std::vector<Node> nodes;
    const size_t count = fields.items();
    if (count > kMostNodes) fields.fail("has {} nodes, expected at most {}", count, kMostNodes);
    nodes.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      const JsonField field = fields.at(i);
      Node node = read_head(field);
      if (node.target.starts_with("higher_order.")) {
        nested_.add(node);
      } else if (changes_operand(node.target)) {
        in_place_.add(node);
      } else if (!computes_numbers(node, field)) {
        read_outputs(node, field);
        read_arguments(node, field);
        nodes.push_back(std::move(node));
      }
    }
    refuse();
    return nodes;
  }

 private:
  void refuse() const {
    if (in_place_.count > 0)
      fail_user("{}: {} nodes change a tensor in place, the first is {}: {}", file_,
                in_place_.count, in_place_.first, kExportAdvice);
    if (nested_.count > 0)
      fail_user(
          "{}: {} nodes have graphs inside, the first is {}: {}; control flow that depends on "
          "data cannot be trained",
          file_, nested_.count, nested_.first, kExportAdvice);
  }

  // Whether a node computes or checks numbers alone: their values are known by expressions.
  static bool computes_numbers(const Node& node, const JsonField& field) {
    const std::string_view name = operator_name(node.target);
    const JsonField outputs = field["outputs"];
    if (outputs.items() == 0)
      return name == "_assert_scalar" || name.starts_with("sym_constrain_range");
    for (size_t i = 0; i < outputs.items(); ++i)
      if (!NamedValues::is_symbolic(outputs.at(i))) return false;
    return true;
  }

  void read_outputs(Node& node, const JsonField& field) const {
    const JsonField outputs = field["outputs"];
    for (size_t i = 0; i < outputs.items(); ++i) {
      const JsonField output = outputs.at(i);
      const Argument argument = values_.argument(output);
      if (const auto* tensor = std::get_if<TensorRef>(&argument))
        node.outputs.push_back(*tensor);
      else if (const auto* tensors = std::get_if<std::vector<TensorRef>>(&argument))
        node.outputs.insert(node.outputs.end(), tensors->begin(), tensors->end());
      else if (std::holds_alternative<std::monostate>(argument))
        node.outputs.push_back({});
      else
        output.fail("is {}, expected a tensor that {} makes", kind_of(argument), describe(node));
    }
    if (node.name.empty() && !node.outputs.empty() && node.outputs[0])
      node.name = values_.tensors()[static_cast<size_t>(node.outputs[0].id)].name;
  }

  void read_arguments(Node& node, const JsonField& field) const {
    const JsonField inputs = field["inputs"];
    if (inputs.items() > kMostArguments)
      inputs.fail("has {} arguments, expected at most {}", inputs.items(), kMostArguments);
    for (size_t i = 0; i < inputs.items(); ++i) {
      const JsonField input = inputs.at(i);
      const std::string& name = input["name"].text();
      if (is_ignored_argument(name)) continue;
      if (node.find(name)) input.fail("gives \"{}\" of {} twice", shown_text(name), describe(node));
      node.arguments.emplace_back(name, values_.argument(input["arg"]));
      if (node.schema) check_argument(node, input);
    }
    if (node.schema) fill_in(node, field);
  }

  // Brings the last argument into the type that its schema states.
  static void check_argument(Node& node, const JsonField& input) {
    auto& [name, argument] = node.arguments.back();
    const auto& stated = node.schema->arguments;
    const auto it = std::ranges::find(stated, name, &SchemaArgument::name);
    if (it == stated.end())
      input.fail("is the argument \"{}\", which {} does not have", shown_text(name),
                 describe(node));
    const std::string_view kind = kind_of(argument);
    std::optional<Argument> typed = as_stated(std::move(argument), *it);
    if (!typed) input.fail("gives {} for \"{}\" of {}", kind, name, describe(node));
    argument = std::move(*typed);
  }

  // Brings the arguments into the order of the schema, with its defaults for those that are absent.
  static void fill_in(Node& node, const JsonField& field) {
    std::vector<std::pair<std::string, Argument>> filled;
    for (const SchemaArgument& stated : node.schema->arguments) {
      if (const Argument* given = node.find(stated.name))
        filled.emplace_back(stated.name, *given);
      else if (stated.fallback)
        filled.emplace_back(stated.name, *stated.fallback);
      else
        field.fail("lacks the argument \"{}\" of {}", stated.name, describe(node));
    }
    node.arguments = std::move(filled);
  }

  const NamedValues& values_;
  const std::string& file_;
  Refused in_place_, nested_;
};

}  // namespace

std::vector<Node> read_nodes(const JsonField& nodes, const NamedValues& values,
                             const std::string& file) {
  return NodeReader(values, file).read(nodes);
}

}  // namespace dstrain::exported
