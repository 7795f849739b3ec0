#include "models/exported/read/read_graph.h"

#include <set>
#include <utility>

#include "models/exported/read/read_nodes.h"
#include "models/exported/read/read_signature.h"
#include "models/exported/read/read_values.h"
#include "models/exported/text/json_field.h"
#include "runtime/core/formats/shown_text.h"

namespace dstrain::exported {
namespace {

constexpr int64_t kSchemaMajor = 8;

void check_version(const JsonField& root) {
  const JsonField version = root["schema_version"];
  const int64_t major = version["major"].whole();
  if (major == kSchemaMajor) return;
  const auto torch = root.find("torch_version");
  version.fail(
      "is {}.{}, written by PyTorch {}, expected {}.x: export the model with a version of "
      "PyTorch that writes {}.x, as 2.15 does",
      major, version["minor"].whole(), torch ? shown_text(torch->text()) : "of no stated version",
      kSchemaMajor, kSchemaMajor);
}

// Checks that every tensor is made once and before it is used.
class OrderCheck {
 public:
  OrderCheck(const Graph& graph, const std::string& file)
      : graph_(graph), file_(file), made_(graph.tensors.size()) {}

  void run() {
    for (const GraphInput& input : graph_.inputs)
      make(input.tensor, fmt::format("the input \"{}\"", shown_text(input.name)));
    for (const Node& node : graph_.nodes) {
      for_each_operand(node, [&](TensorRef ref) { use(ref, node); });
      for (const TensorRef output : node.outputs)
        if (output) make(output, describe(node));
    }
    for (const GraphOutput& output : graph_.outputs)
      if (!made_[static_cast<size_t>(output.tensor.id)])
        fail_user("{}: the output \"{}\" is the tensor \"{}\", which no node makes", file_,
                  shown_text(output.name), graph_.tensor(output.tensor).name);
    check_names();
  }

 private:
  void use(TensorRef ref, const Node& node) const {
    if (ref && !made_[static_cast<size_t>(ref.id)])
      fail_user("{}: {} takes the tensor \"{}\", which no node before it makes", file_,
                describe(node), graph_.tensor(ref).name);
  }

  void make(TensorRef ref, const std::string& maker) {
    if (made_[static_cast<size_t>(ref.id)])
      fail_user("{}: {} makes the tensor \"{}\", which exists already", file_, maker,
                graph_.tensor(ref).name);
    made_[static_cast<size_t>(ref.id)] = true;
  }

  // Names of the module's state occur once, and new values are those of buffers, of their type and sizes.
  void check_names() const {
    std::map<std::string_view, const GraphInput*> state;
    for (const GraphInput& input : graph_.inputs)
      if (input.kind != InputKind::user && !state.emplace(input.name, &input).second)
        fail_user("{}: \"{}\" is an input twice", file_, shown_text(input.name));
    std::set<std::string_view> changed;
    for (const GraphOutput& output : graph_.outputs) {
      if (output.kind != OutputKind::buffer) continue;
      const auto it = state.find(output.name);
      if (it == state.end() || it->second->kind != InputKind::buffer)
        fail_user("{}: the graph changes \"{}\", which is no buffer", file_,
                  shown_text(output.name));
      const TensorInfo &before = graph_.tensor(it->second->tensor),
                       &after = graph_.tensor(output.tensor);
      if (before.type != after.type || before.sizes != after.sizes)
        fail_user("{}: the buffer \"{}\" is {} {} and becomes {} {}", file_,
                  shown_text(output.name), name_of(before.type), to_string(before.sizes),
                  name_of(after.type), to_string(after.sizes));
      if (!changed.insert(output.name).second)
        fail_user("{}: the graph changes the buffer \"{}\" twice", file_, shown_text(output.name));
    }
  }

  const Graph& graph_;
  const std::string& file_;
  std::vector<bool> made_;
};

void read_symbols(const JsonField& root, Graph& graph) {
  const std::optional<JsonField> ranges = root.find("range_constraints");
  if (!ranges) return;
  ranges->for_each_member([&](const std::string& name, const JsonField& range) {
    SymbolRange& symbol = graph.symbols[name];
    if (const auto lowest = range.find("min_val")) symbol.lowest = lowest->whole();
    if (const auto highest = range.find("max_val")) symbol.highest = highest->whole();
  });
}

}  // namespace

Graph read_graph(std::string_view json, const std::string& file) {
  // Where nodes came from inside PyTorch is half of the text.
  const JsonDocument document = read_json(json, file, "from_node");
  const JsonField root(document);
  check_version(root);
  const JsonField module = root["graph_module"], fields = module["graph"];
  const NamedValues values(fields);
  Graph graph;
  graph.nodes = read_nodes(fields["nodes"], values, file);
  graph.inputs = read_inputs(module, values);
  graph.outputs = read_outputs(module, values);
  graph.tensors = values.tensors();
  read_symbols(root, graph);
  if (const auto version = root.find("torch_version")) graph.torch_version = version->text();
  OrderCheck(graph, file).run();
  return graph;
}

}  // namespace dstrain::exported
