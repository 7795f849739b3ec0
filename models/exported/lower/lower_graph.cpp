#include "models/exported/lower/lower_graph.h"

#include <algorithm>
#include <set>
#include <vector>

#include "models/exported/lower/lower_losses.h"
#include "models/exported/lower/operators.h"

namespace dstrain::exported {
namespace {

// Returns the tensors that the losses read, behind all nodes.
std::vector<TensorRef> read_at_end(const LossTerms& losses,
                                   const std::vector<const Node*>& cross_entropies) {
  std::vector<TensorRef> tensors;
  for (const LossTerm& term : losses.terms) tensors.push_back(term.tensor);
  for (const Node* node : cross_entropies)
    for_each_operand(*node, [&](TensorRef ref) { tensors.push_back(ref); });
  return tensors;
}

// Returns of each node whether a loss depends on it.
std::vector<bool> nodes_of_losses(const Graph& graph, const LossTerms& losses) {
  std::set<int32_t> needed;
  for (const LossTerm& term : losses.terms) needed.insert(term.tensor.id);
  std::vector<bool> live(graph.nodes.size());
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    const Node& node = graph.nodes[n];
    live[n] = std::ranges::any_of(node.outputs,
                                  [&needed](TensorRef ref) { return needed.contains(ref.id); });
    if (live[n]) for_each_operand(node, [&needed](TensorRef ref) { needed.insert(ref.id); });
  }
  return live;
}

// Returns the graph without nodes that no loss depends on: other outputs, counters of steps.
FoldedGraph without_rest(const FoldedGraph& folded) {
  FoldedGraph kept = folded;
  const std::vector<bool> live =
      nodes_of_losses(folded.graph, {{{loss_output(folded.graph).tensor}}, {}});
  kept.graph.nodes.clear();
  for (size_t n = 0; n < live.size(); ++n)
    if (live[n]) kept.graph.nodes.push_back(folded.graph.nodes[n]);
  return kept;
}

}  // namespace

void lower_graph(Builder& builder, const FoldedGraph& whole_graph, const GraphFacts& facts) {
  const FoldedGraph folded = without_rest(whole_graph);
  const Graph& graph = folded.graph;
  check_operators(graph);
  const LossTerms losses = loss_terms(graph, Builder::kMostLosses);
  const std::vector<const Node*> at_end = cross_entropies(graph, losses);
  Lowering lowering(builder, folded, facts, read_at_end(losses, at_end));
  const std::vector<GraphLayer> layers = layers_of(graph);
  size_t next = 0;
  lowering.begin_layer(layers[next++], 0);
  lowering.declare_inputs();
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    for (; next < layers.size() && layers[next].first_node == n; ++next)
      lowering.begin_layer(layers[next], n);
    const Node& node = graph.nodes[n];
    const bool of_losses = std::ranges::find(losses.sums, n) != losses.sums.end() ||
                           std::ranges::find(at_end, &node) != at_end.end();
    if (!of_losses) find_operator(node.target)->lower(lowering, node);
  }
  emit_losses(lowering, losses);
}

}  // namespace dstrain::exported
