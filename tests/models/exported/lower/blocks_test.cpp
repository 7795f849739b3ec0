#include "models/exported/lower/blocks.h"

#include <catch2/catch.hpp>

#include "models/exported/lower/loss_terms.h"
#include "runtime/core/error.h"

namespace dstrain::exported {
namespace {

using Names = std::vector<std::string>;

TensorInfo tensor_of(const std::string& name, const std::vector<Size>& sizes) {
  TensorInfo tensor;
  tensor.name = name;
  tensor.sizes = sizes;
  return tensor;
}

// A graph whose nodes belong to these modules, and whose parameters have these names and sizes.
Graph graph_of(const Names& modules,
               const std::vector<std::pair<std::string, int64_t>>& parameters) {
  Graph graph;
  for (const auto& [name, size] : parameters) {
    const TensorRef ref{static_cast<int32_t>(graph.tensors.size())};
    graph.tensors.push_back(tensor_of("p_" + name, {size}));
    graph.inputs.push_back({.kind = InputKind::parameter, .tensor = ref, .name = name});
  }
  for (const std::string& module : modules) graph.nodes.emplace_back().module_path = module;
  return graph;
}

Names names_of(const std::vector<GraphLayer>& layers) {
  Names names;
  for (const GraphLayer& layer : layers)
    names.push_back(layer.number < 0 ? layer.stack
                                     : layer.stack + "#" + std::to_string(layer.number));
  return names;
}

TEST_CASE("equal blocks of a list of modules are layers") {
  const Graph graph = graph_of({"embed", "h.0.a", "h.0.b", "", "h.1.a", "h.1.b", "head"},
                               {{"embed.w", 8}, {"h.0.a.w", 4}, {"h.1.a.w", 4}, {"head.w", 2}});
  const std::vector<GraphLayer> layers = layers_of(graph);
  CHECK(names_of(layers) == Names{"inputs", "h#0", "h#1", "outputs"});
  CHECK(layers[1].first_node == 1);
  CHECK(layers[2].first_node == 4);
  CHECK(layers[3].first_node == 6);
}

TEST_CASE("blocks of other lists than the largest are layers without numbers") {
  const Graph graph = graph_of({"enc.0", "enc.1", "dec.0", "dec.1"},
                               {{"enc.0.w", 2}, {"enc.1.w", 2}, {"dec.0.w", 4}, {"dec.1.w", 4}});
  CHECK(names_of(layers_of(graph)) == Names{"enc.0", "enc.1", "dec#0", "dec#1"});
}

TEST_CASE("patterns of modules say which are layers") {
  const Graph graph =
      graph_of({"embed", "net.first.a", "net.second", "tail.0.a", "tail.0.b", "tail.1.a", "head"},
               {{"embed.w", 8},
                {"net.first.a.w", 4},
                {"net.second.w", 4},
                {"tail.0.a.w", 2},
                {"tail.1.a.w", 2}});
  CHECK(names_of(layers_of(graph, {"tail.*"})) == Names{"inputs", "tail#0", "tail#1", "outputs"});
  CHECK(names_of(layers_of(graph, {"tail.*", "net.first"})) ==
        Names{"inputs", "net.first#0", "tail.0", "tail.1", "outputs"});
  CHECK(names_of(layers_of(graph, {"net"})) == Names{"inputs", "net#0", "outputs"});
  const auto refusal = [](const Graph& of, const Names& patterns) {
    try {
      layers_of(of, patterns);
    } catch (const UserError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  using Catch::Contains;
  CHECK_THAT(refusal(graph, {"tail.*", "h.*"}),
             Contains("\"h.*\" names no module") && Contains("embed, net.first.a, net.second"));
  CHECK_THAT(refusal(graph, {"net.*"}),
             Contains("different parameters: net.first has a.w(4), and net.second has w(4)"));
  CHECK_THAT(refusal(graph_of({"h.0", "", "h.0"}, {{"h.0.w", 2}}), {"h.*"}),
             Contains("h.0 of \"h.*\" runs twice"));
}

TEST_CASE("layers of a program have parameters of their own") {
  Graph graph = graph_of({"", "h.0", "h.1", "h.2", ""},
                         {{"h.0.w", 2}, {"h.1.w", 2}, {"h.2.w", 2}, {"unused", 2}});
  const auto read = [&graph](size_t node, size_t input) {
    graph.nodes[node].arguments.emplace_back("x", graph.inputs[input].tensor);
  };
  read(1, 0);
  read(2, 0);  // of the block before: it has none of its own
  read(3, 2);
  read(4, 2);
  const std::vector<GraphLayer> layers = program_layers(graph, {});
  CHECK(names_of(layers_of(graph)) == Names{"inputs", "h#0", "h#1", "h#2", "outputs"});
  REQUIRE(names_of(layers) == Names{"h#0", "h#1"});
  CHECK(layers[0].first_node == 0);
  CHECK(layers[1].first_node == 3);
}

TEST_CASE("different modules of a list, and those that run twice, are no layers") {
  CHECK(names_of(layers_of(graph_of({"net.0", "net.1"}, {{"net.0.w", 2}, {"net.1.w", 3}}))) ==
        Names{"inputs"});
  CHECK(names_of(layers_of(graph_of({"net.0", "net.1", "net.0", "net.1"},
                                    {{"net.0.w", 2}, {"net.1.w", 2}}))) == Names{"inputs"});
}

TEST_CASE("a graph without a loss is refused") {
  Graph graph = graph_of({}, {});
  graph.tensors.push_back(tensor_of("y", {3}));
  graph.outputs.push_back({.kind = OutputKind::user, .tensor = {0}, .name = "y"});
  CHECK_THROWS_WITH(loss_output(graph), Catch::Contains("returns no loss"));
}

TEST_CASE("the loss is the output of that name, or the first fraction") {
  Graph graph = graph_of({}, {});
  for (const char* const name : {"accuracy", "loss"}) {
    const TensorRef ref{static_cast<int32_t>(graph.tensors.size())};
    graph.tensors.push_back(tensor_of(name, {}));
    graph.outputs.push_back({.kind = OutputKind::user, .tensor = ref, .name = name});
  }
  CHECK(loss_output(graph).name == "loss");
  graph.outputs[1].name = "other";
  CHECK(loss_output(graph).name == "accuracy");
}

}  // namespace
}  // namespace dstrain::exported
