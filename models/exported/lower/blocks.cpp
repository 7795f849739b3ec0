#include "models/exported/lower/blocks.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

namespace dstrain::exported {
namespace {

// A module of a list: "h" and 3 of "h.3.ln1".
struct Place {
  std::string_view stack;
  int64_t number = 0;
  std::string_view rest;  // "ln1"
};

// Returns the outermost list of modules that a path goes through.
std::optional<Place> place_of(std::string_view path) {
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    int64_t number = 0;
    const auto [to, error] = std::from_chars(path.data() + begin, path.data() + end, number);
    if (begin > 0 && error == std::errc() && to == path.data() + end)
      return Place{path.substr(0, begin - 1), number, path.substr(std::min(end + 1, path.size()))};
    begin = end + 1;
  }
  return std::nullopt;
}

// A list of modules: of each block the names and shapes of its parameters.
struct Stack {
  std::map<int64_t, std::vector<std::string>> blocks;
  int64_t elements = 0;

  bool is_even() const {
    return blocks.size() > 1 && std::ranges::all_of(blocks, [this](const auto& block) {
             return block.second == blocks.begin()->second;
           });
  }
};

using Stacks = std::map<std::string, Stack, std::less<>>;

// Returns the lists of equal blocks.
Stacks even_stacks(const Graph& graph) {
  Stacks stacks;
  for (const GraphInput& input : graph.inputs) {
    const std::optional<Place> place =
        input.kind == InputKind::parameter ? place_of(input.name) : std::nullopt;
    if (!place) continue;
    const TensorInfo& tensor = graph.tensor(input.tensor);
    Stack& stack = stacks[std::string(place->stack)];
    stack.blocks[place->number].push_back(std::string(place->rest) + to_string(tensor.sizes));
    int64_t elements = 1;
    for (const Size& size : tensor.sizes) elements *= size.is_fixed() ? size.value() : 1;
    stack.elements += elements;
  }
  std::erase_if(stacks, [](const auto& stack) { return !stack.second.is_even(); });
  return stacks;
}

// A run of nodes of one block, or of none.
struct Run {
  std::optional<std::pair<std::string, int64_t>> block{};
  size_t first_node = 0;
};

std::vector<Run> runs_of(const Graph& graph, const Stacks& stacks) {
  std::vector<Run> runs;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const std::optional<Place> place = place_of(graph.nodes[n].module_path);
    Run run{.first_node = n};
    if (place && stacks.contains(place->stack))
      run.block = {std::string(place->stack), place->number};
    if (runs.empty() || runs.back().block != run.block) runs.push_back(std::move(run));
  }
  return runs;
}

// Returns the lists of which a block runs twice, or with nodes of others between its own.
std::vector<std::string> torn_stacks(const std::vector<Run>& runs) {
  std::map<std::pair<std::string, int64_t>, int> times;
  for (const Run& run : runs)
    if (run.block) ++times[*run.block];
  std::vector<std::string> torn;
  for (const auto& [block, count] : times)
    if (count > 1) torn.push_back(block.first);
  return torn;
}

}  // namespace

std::vector<GraphLayer> layers_of(const Graph& graph) {
  Stacks stacks = even_stacks(graph);
  for (const std::string& torn : torn_stacks(runs_of(graph, stacks))) stacks.erase(torn);
  const auto largest =
      std::ranges::max_element(stacks, {}, [](const auto& stack) { return stack.second.elements; });
  const std::vector<Run> runs = runs_of(graph, stacks);
  std::vector<GraphLayer> layers;
  const auto last_block = std::ranges::find_if(
      runs.rbegin(), runs.rend(), [](const Run& run) { return run.block.has_value(); });
  for (const Run& run : runs) {
    const bool behind = last_block != runs.rend() && run.first_node > last_block->first_node;
    if (!run.block) {
      // What is between blocks belongs to the one before.
      if (layers.empty() || behind)
        layers.push_back({.stack = behind ? "outputs" : "inputs", .first_node = run.first_node});
      continue;
    }
    const auto& [stack, number] = *run.block;
    if (largest != stacks.end() && stack == largest->first) {
      const auto before = std::ranges::count(layers, stack, &GraphLayer::stack);
      layers.push_back({stack, before, run.first_node});
    } else {
      layers.push_back({stack + "." + std::to_string(number), -1, run.first_node});
    }
  }
  if (layers.empty()) layers.push_back({.stack = "inputs"});
  return layers;
}

}  // namespace dstrain::exported
