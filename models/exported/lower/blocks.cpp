#include "models/exported/lower/blocks.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "runtime/core/error.h"
#include "runtime/core/fine_tuning/fine_tuning.h"

namespace dstrain::exported {
namespace {

// A module that may be a layer: "h" and "h.3" of "h.3.ln1".
struct Place {
  std::string_view stack;  // the list that it is in
  std::string_view block;
  std::string_view rest;  // "ln1"
};

// Returns the outermost list of modules that a path goes through.
std::optional<Place> numbered_place(std::string_view path) {
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    int64_t number = 0;
    const auto [to, error] = std::from_chars(path.data() + begin, path.data() + end, number);
    if (begin > 0 && error == std::errc() && to == path.data() + end)
      return Place{path.substr(0, begin - 1), path.substr(0, end),
                   path.substr(std::min(end + 1, path.size()))};
    begin = end + 1;
  }
  return std::nullopt;
}

std::string_view first_part(std::string_view& rest) {
  const size_t end = std::min(rest.find('.'), rest.size());
  const std::string_view part = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return part;
}

// Returns the module that a pattern names and a path goes through.
std::optional<Place> named_place(std::string_view path, std::string_view pattern) {
  std::string_view rest = path, parts = pattern;
  while (!parts.empty())
    if (rest.empty() || !matches(std::string(first_part(parts)), first_part(rest)))
      return std::nullopt;
  const size_t end = path.size() - rest.size();
  return Place{pattern, path.substr(0, rest.empty() ? end : end - 1), rest};
}

// Finds the module of a path that may be a layer.
class Places {
 public:
  explicit Places(const std::vector<std::string>& patterns) : patterns_(patterns) {}

  std::optional<Place> of(std::string_view path) const {
    if (patterns_.empty()) return numbered_place(path);
    for (const std::string& pattern : patterns_)
      if (const std::optional<Place> place = named_place(path, pattern)) return place;
    return std::nullopt;
  }

 private:
  const std::vector<std::string>& patterns_;
};

// A list of modules: of each block the names and shapes of its parameters.
struct Stack {
  std::map<std::string, std::vector<std::string>, std::less<>> blocks;
  int64_t elements = 0;

  bool is_even() const {
    return std::ranges::all_of(
        blocks, [this](const auto& block) { return block.second == blocks.begin()->second; });
  }
};

using Stacks = std::map<std::string, Stack, std::less<>>;

Stacks all_stacks(const Graph& graph, const Places& places) {
  Stacks stacks;
  for (const GraphInput& input : graph.inputs) {
    const std::optional<Place> place =
        input.kind == InputKind::parameter ? places.of(input.name) : std::nullopt;
    if (!place) continue;
    const TensorInfo& tensor = graph.tensor(input.tensor);
    Stack& stack = stacks[std::string(place->stack)];
    stack.blocks[std::string(place->block)].push_back(std::string(place->rest) +
                                                      to_string(tensor.sizes));
    int64_t elements = 1;
    for (const Size& size : tensor.sizes) elements *= size.is_fixed() ? size.value() : 1;
    stack.elements += elements;
  }
  return stacks;
}

// A run of nodes of one block, or of none.
struct Run {
  std::optional<std::pair<std::string, std::string>> block{};  // its list, and its path
  size_t first_node = 0;
};

std::vector<Run> runs_of(const Graph& graph, const Stacks& stacks, const Places& places) {
  std::vector<Run> runs;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const std::optional<Place> place = places.of(graph.nodes[n].module_path);
    Run run{.first_node = n};
    if (place && stacks.contains(place->stack))
      run.block = {std::string(place->stack), std::string(place->block)};
    if (runs.empty() || runs.back().block != run.block) runs.push_back(std::move(run));
  }
  return runs;
}

// Returns the blocks that run twice, or with nodes of others between their own, each with its list.
std::vector<std::pair<std::string, std::string>> torn_blocks(const std::vector<Run>& runs) {
  std::map<std::pair<std::string, std::string>, int> times;
  for (const Run& run : runs)
    if (run.block) ++times[*run.block];
  std::vector<std::pair<std::string, std::string>> torn;
  for (const auto& [block, count] : times)
    if (count > 1) torn.push_back(block);
  return torn;
}

// Returns the lists of equal blocks that the graph has by itself.
Stacks found_stacks(const Graph& graph, const Places& places) {
  Stacks stacks = all_stacks(graph, places);
  std::erase_if(stacks, [](const auto& stack) {
    return stack.second.blocks.size() < 2 || !stack.second.is_even();
  });
  for (const auto& [stack, block] : torn_blocks(runs_of(graph, stacks, places)))
    stacks.erase(stack);
  return stacks;
}

constexpr std::string_view kKey = "dstrain.model.blocks";

// Returns the modules that have parameters, for messages.
std::string modules_of(const Graph& graph) {
  constexpr size_t kMost = 12;
  std::vector<std::string> modules;
  for (const GraphInput& input : graph.inputs) {
    const size_t end = input.name.rfind('.');
    if (input.kind != InputKind::parameter || end == std::string::npos) continue;
    const std::string module = input.name.substr(0, end);
    if (std::ranges::find(modules, module) == modules.end()) modules.push_back(module);
  }
  const bool more = modules.size() > kMost;
  if (more) modules.resize(kMost);
  return fmt::format("{}{}", fmt::join(modules, ", "), more ? ", ..." : "");
}

// Returns the lists of the blocks that patterns name.
Stacks named_stacks(const Graph& graph, const std::vector<std::string>& patterns,
                    const Places& places) {
  Stacks stacks = all_stacks(graph, places);
  for (const std::string& pattern : patterns)
    if (!stacks.contains(pattern))
      fail_user("{}: \"{}\" names no module with parameters of its own: those of the graph are {}",
                kKey, pattern, modules_of(graph));
  for (const auto& [pattern, stack] : stacks)
    for (const auto& [block, parameters] : stack.blocks)
      if (const auto& [first, expected] = *stack.blocks.begin(); parameters != expected)
        fail_user(
            "{}: the blocks of \"{}\" have different parameters: {} has {}, and {} has {}; "
            "give each kind of block a pattern of its own",
            kKey, pattern, first, fmt::join(expected, ", "), block, fmt::join(parameters, ", "));
  for (const auto& [pattern, block] : torn_blocks(runs_of(graph, stacks, places)))
    fail_user(
        "{}: {} of \"{}\" runs twice, or has other modules' work within its own, so it is no "
        "layer: name modules that run once",
        kKey, block, pattern);
  return stacks;
}

// Returns what the layers of a list are called: "h" of "h.*".
std::string layers_name(const std::string& stack) {
  return stack.ends_with(".*") ? stack.substr(0, stack.size() - 2) : stack;
}

}  // namespace

std::vector<GraphLayer> layers_of(const Graph& graph, const std::vector<std::string>& patterns) {
  const Places places(patterns);
  const Stacks stacks =
      patterns.empty() ? found_stacks(graph, places) : named_stacks(graph, patterns, places);
  const auto largest =
      std::ranges::max_element(stacks, {}, [](const auto& stack) { return stack.second.elements; });
  const std::vector<Run> runs = runs_of(graph, stacks, places);
  std::vector<GraphLayer> layers;
  const auto last_block = std::ranges::find_if(
      runs.rbegin(), runs.rend(), [](const Run& run) { return run.block.has_value(); });
  int64_t numbered = 0;
  for (const Run& run : runs) {
    const bool behind = last_block != runs.rend() && run.first_node > last_block->first_node;
    if (!run.block) {
      // What is between blocks belongs to the one before.
      if (layers.empty() || behind)
        layers.push_back({.stack = behind ? "outputs" : "inputs", .first_node = run.first_node});
      continue;
    }
    const auto& [stack, block] = *run.block;
    if (largest != stacks.end() && stack == largest->first)
      layers.push_back({layers_name(stack), numbered++, run.first_node});
    else
      layers.push_back({block, -1, run.first_node});
  }
  if (layers.empty()) layers.push_back({.stack = "inputs"});
  return layers;
}

std::vector<GraphLayer> program_layers(const Graph& graph,
                                       const std::vector<std::string>& patterns) {
  const std::vector<GraphLayer> all = layers_of(graph, patterns);
  std::set<int32_t> unused;  // parameters that no layer so far has used
  for (const GraphInput& input : graph.inputs)
    if (input.kind == InputKind::parameter) unused.insert(input.tensor.id);
  std::vector<GraphLayer> layers;
  int64_t numbered = 0;
  for (size_t l = 0; l < all.size(); ++l) {
    const size_t end = l + 1 < all.size() ? all[l + 1].first_node : graph.nodes.size(),
                 before = unused.size();
    for (size_t n = all[l].first_node; n < end; ++n)
      for_each_operand(graph.nodes[n], [&unused](TensorRef ref) { unused.erase(ref.id); });
    if (unused.size() == before) continue;
    layers.push_back(all[l]);
    if (layers.size() == 1) layers.back().first_node = 0;
    if (all[l].number >= 0) layers.back().number = numbered++;
  }
  return layers.empty() ? std::vector{all.front()} : layers;
}

std::vector<GraphLayer> numbered_layers(const Graph& graph,
                                        const std::vector<std::string>& modules) {
  std::vector<GraphLayer> layers{{.stack = "inputs"}};
  size_t next = 0;
  const auto is_of = [&](size_t n, const std::string& module) {
    const std::string& path = graph.nodes[n].module_path;
    return path == module || path.starts_with(module + ".");
  };
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (next > 0 && is_of(n, modules[next - 1])) continue;
    if (next < modules.size() && is_of(n, modules[next])) {
      layers.push_back({"blocks", static_cast<int64_t>(next++), n});
    } else if (next == modules.size() && layers.back().number >= 0) {
      layers.push_back({.stack = "outputs", .first_node = n});
    }
  }
  check(next == modules.size(), "module {} of a graph has no node",
        modules[std::min(next, modules.size() - 1)]);
  return layers;
}

}  // namespace dstrain::exported
