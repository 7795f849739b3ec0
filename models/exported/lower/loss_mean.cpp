#include "models/exported/lower/loss_mean.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "models/exported/lower/formulas.h"
#include "models/exported/lower/lowering.h"

namespace dstrain::exported {
namespace {

constexpr int64_t kMean = 1, kSum = 2;  // PyTorch's numbers of reductions

// Returns the input of the user that a tensor has all elements of, in order; none if it is not one as it is.
TensorRef input_behind(const Graph& graph, TensorRef ref) {
  constexpr std::array<std::string_view, 6> views = {
      "aten.view.default",       "aten.reshape.default", "aten._unsafe_view.default",
      "aten.flatten.using_ints", "aten.alias.default",   "aten.contiguous.default"};
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    const Node& node = graph.nodes[n];
    if (std::ranges::find(node.outputs, ref) == node.outputs.end()) continue;
    if (std::ranges::find(views, node.target) == views.end()) return {};
    ref = node.tensor("self");
  }
  return ref;
}

// Returns whether an operator takes a term of the loss, beside those that add terms: it needs its value.
bool is_taken(const Graph& graph, const LossTerms& losses, TensorRef term) {
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (std::ranges::find(losses.sums, n) != losses.sums.end()) continue;
    bool taken = false;
    for_each_operand(graph.nodes[n], [&](TensorRef ref) { taken = taken || ref == term; });
    if (taken) return true;
  }
  return false;
}

// Returns the labels that texts give, if a validation takes the mean over all of them: the last micro-batch may have few.
TensorRef labels_of_mean(const Graph& graph, const GraphFacts& facts, const LossTerms& losses) {
  if (losses.terms.size() != 1) return {};
  const Node* const node = maker_of(graph, losses.terms[0].tensor);
  if (!node || !is_by_class(graph, *node) || !is_mean(*node) || node->whole("ignore_index") >= 0)
    return {};
  if (cross_entropies(graph, losses).empty()) return {};  // others take it, as a number
  const TensorRef input = input_behind(graph, node->tensor("target"));
  for (const GraphInput& of_graph : graph.inputs)
    if (of_graph.tensor == input && of_graph.kind == InputKind::user &&
        facts.role_of(of_graph.name) == InputRole::labels && of_graph.name != facts.unshifted)
      return input;
  return {};
}

}  // namespace

std::vector<const Node*> cross_entropies(const Graph& graph, const LossTerms& losses) {
  std::vector<const Node*> nodes;
  for (const LossTerm& term : losses.terms)
    if (const Node* node = maker_of(graph, term.tensor);
        node && is_by_class(graph, *node) && !is_taken(graph, losses, term.tensor))
      if (std::ranges::find(nodes, node) == nodes.end()) nodes.push_back(node);
  return nodes;
}

const Node* maker_of(const Graph& graph, TensorRef ref) {
  const auto node = std::ranges::find_if(graph.nodes, [ref](const Node& n) {
    return std::ranges::find(n.outputs, ref) != n.outputs.end();
  });
  return node == graph.nodes.end() ? nullptr : &*node;
}

bool is_by_class(const Graph& graph, const Node& node) {
  if (node.target != "aten.cross_entropy_loss.default") return false;
  const int64_t reduction = node.whole("reduction");
  return !is_floating(graph.tensor(node.tensor("target")).type) && !node.has("weight") &&
         (reduction == kMean || reduction == kSum);
}

bool is_mean(const Node& node) {
  return node.whole("reduction") == kMean;
}

TensorRef weight_output(const Graph& graph, const GraphFacts& facts) {
  if (facts.loss_weight.empty()) return {};
  std::vector<std::string_view> numbers;
  for (const GraphOutput& output : graph.outputs) {
    if (output.kind != OutputKind::user || !graph.tensor(output.tensor).sizes.empty()) continue;
    if (output.name == facts.loss_weight) return output.tensor;
    numbers.push_back(output.name);
  }
  fail_user("dstrain.model.loss_weight: the graph returns no number {}: expected one of {}",
            facts.loss_weight, fmt::join(numbers, ", "));
}

LossMean loss_mean(const Graph& graph, const GraphFacts& facts, const LossTerms& losses,
                   bool training) {
  if (const TensorRef weight = weight_output(graph, facts))
    return {.by = facts.counts_labels ? LossWeight::targets : LossWeight::counted,
            .weight = weight};
  const TensorRef labels = training ? TensorRef{} : labels_of_mean(graph, facts, losses);
  if (!labels) return {};
  return {.by = LossWeight::targets, .labels = labels};
}

Value count_of(Lowering& lowering, const Node& node, const Value& ids) {
  const Value counts = lowering.pointwise(
      node, [](std::span<const Formula> x) { return select(less(x[0], 0), 0, 1); }, {ids},
      ScalarType::f32);
  std::vector<int> all;
  for (int d = 0; d < counts.shape.rank; ++d) all.push_back(d);
  return lowering.reduced(Reduction::sum, counts, all, false);
}

Value weighed(Lowering& lowering, const Node& node, const Value& value, const Value& weight) {
  return lowering.pointwise(
      node, [](std::span<const Formula> x) { return select(equal(x[1], 0), 0, x[0] * x[1]); },
      {value, weight}, ScalarType::f32);
}

}  // namespace dstrain::exported
