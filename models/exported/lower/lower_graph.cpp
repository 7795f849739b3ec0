#include "models/exported/lower/lower_graph.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "models/exported/lower/lower_losses.h"
#include "models/exported/lower/metrics.h"
#include "models/exported/lower/operators.h"

namespace dstrain::exported {
namespace {

// Returns of each node whether one of the tensors depends on it.
std::vector<bool> nodes_behind(const Graph& graph, const std::vector<TensorRef>& tensors) {
  std::set<int32_t> needed;
  for (const TensorRef ref : tensors) needed.insert(ref.id);
  std::vector<bool> live(graph.nodes.size());
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    const Node& node = graph.nodes[n];
    live[n] = std::ranges::any_of(node.outputs,
                                  [&needed](TensorRef ref) { return needed.contains(ref.id); });
    if (live[n]) for_each_operand(node, [&needed](TensorRef ref) { needed.insert(ref.id); });
  }
  return live;
}

// Returns the graph with the nodes alone that `tensors` depend on: without other outputs and counters of steps.
FoldedGraph without_rest(const FoldedGraph& folded, const std::vector<TensorRef>& tensors) {
  FoldedGraph kept = folded;
  const std::vector<bool> live = nodes_behind(folded.graph, tensors);
  kept.graph.nodes.clear();
  for (size_t n = 0; n < live.size(); ++n)
    if (live[n]) kept.graph.nodes.push_back(folded.graph.nodes[n]);
  return kept;
}

std::vector<TensorRef> tensors_of(const std::vector<GraphOutput>& outputs) {
  std::vector<TensorRef> tensors;
  for (const GraphOutput& output : outputs) tensors.push_back(output.tensor);
  return tensors;
}

// A graph while it becomes a program.
class GraphLowering {
 public:
  GraphLowering(Builder& builder, const FoldedGraph& folded, const GraphFacts& facts,
                const std::vector<GraphOutput>& metrics)
      : graph_(folded.graph),
        facts_(facts),
        losses_(loss_terms(graph_, Builder::kMostLosses, metrics)),
        mean_(loss_mean(graph_, facts, losses_, builder.options().training)),
        metrics_(metrics),
        cross_entropies_(cross_entropies(graph_, losses_)),
        lowering_(builder, folded, facts, read_at_end()) {
    find_late_nodes();
  }

  void run() {
    const std::vector<GraphLayer> layers = facts_.numbered.empty()
                                               ? program_layers(graph_, facts_.blocks)
                                               : numbered_layers(graph_, facts_.numbered);
    size_t next = 0;
    lowering_.begin_layer(layers[next++], 0);
    lowering_.declare_inputs();
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      for (; next < layers.size() && layers[next].first_node == n; ++next)
        lowering_.begin_layer(layers[next], n);
      if (!late_[n]) lower(n);
    }
    for (const GraphOutput& metric : metrics_)
      if (!is_term(metric.tensor)) emit(metric);
    if (mean_.weight) lower_late(mean_.weight);
    emit_losses(lowering_, losses_, mean_, metrics_);
  }

 private:
  // Returns the tensors that are read behind all nodes.
  std::vector<TensorRef> read_at_end() const {
    std::vector<TensorRef> tensors = tensors_of(metrics_);
    for (const LossTerm& term : losses_.terms) tensors.push_back(term.tensor);
    if (mean_.weight) tensors.push_back(mean_.weight);
    for (const Node* node : cross_entropies_)
      for_each_operand(*node, [&](TensorRef ref) { tensors.push_back(ref); });
    return tensors;
  }

  // What follows from inputs alone, and no loss depends on, is computed where it is needed: the layer that has an input at
  // hand may be far from there.
  void find_late_nodes() {
    std::vector<TensorRef> terms;
    for (const LossTerm& term : losses_.terms) terms.push_back(term.tensor);
    late_ = nodes_behind(graph_, terms);
    late_.flip();
    std::set<int32_t> other;  // tensors that follow from more than inputs
    for (const GraphInput& input : graph_.inputs)
      if (input.kind != InputKind::user) other.insert(input.tensor.id);
    for (size_t n = 0; n < late_.size(); ++n) {
      bool of_inputs = true;
      for_each_operand(graph_.nodes[n],
                       [&](TensorRef ref) { of_inputs = of_inputs && !other.contains(ref.id); });
      late_[n] = late_[n] && of_inputs;
      if (!of_inputs)
        for (const TensorRef ref : graph_.nodes[n].outputs) other.insert(ref.id);
    }
  }

  // Lowers the late nodes that a tensor depends on.
  void lower_late(TensorRef ref) {
    for (size_t n = graph_.nodes.size(); n-- > 0;) {
      const std::vector<TensorRef>& outputs = graph_.nodes[n].outputs;
      if (!late_[n] || std::ranges::find(outputs, ref) == outputs.end()) continue;
      late_[n] = false;
      lower(n);
    }
  }

  void lower(size_t n) {
    const Node& node = graph_.nodes[n];
    const bool of_losses = std::ranges::find(losses_.sums, n) != losses_.sums.end() ||
                           std::ranges::find(cross_entropies_, &node) != cross_entropies_.end();
    for_each_operand(node, [this](TensorRef ref) {
      if (ref) lower_late(ref);
    });
    if (of_losses) return;
    find_operator(node.target)->lower(lowering_, node);
    for (const GraphOutput& metric : metrics_)
      if (std::ranges::find(node.outputs, metric.tensor) != node.outputs.end() &&
          !is_term(metric.tensor))
        emit(metric);
  }

  // Emits a metric, once.
  void emit(const GraphOutput& metric) {
    if (!emitted_.insert(metric.name).second) return;
    lower_late(metric.tensor);
    if (mean_.weight) lower_late(mean_.weight);
    emit_metric(lowering_, metric, mean_);
  }

  // Whether a tensor is one of the losses, whose mean is known.
  bool is_term(TensorRef ref) const {
    return std::ranges::find(losses_.terms, ref, &LossTerm::tensor) != losses_.terms.end();
  }

  const Graph& graph_;
  const GraphFacts& facts_;
  const LossTerms losses_;
  const LossMean mean_;
  const std::vector<GraphOutput>& metrics_;
  const std::vector<const Node*> cross_entropies_;
  Lowering lowering_;
  std::vector<bool> late_;  // of each node: it has not been lowered, and waits until it is needed
  std::set<std::string> emitted_;
};

}  // namespace

FoldedGraph trained_part(const FoldedGraph& folded, const GraphFacts& facts) {
  std::vector<TensorRef> wanted = tensors_of(metric_outputs(folded.graph, facts));
  wanted.push_back(loss_output(folded.graph).tensor);
  if (const TensorRef weight = weight_output(folded.graph, facts)) wanted.push_back(weight);
  return without_rest(folded, wanted);
}

void lower_graph(Builder& builder, const FoldedGraph& whole_graph, const GraphFacts& facts) {
  const FoldedGraph folded = trained_part(whole_graph, facts);
  check_operators(folded.graph);
  const std::vector<GraphOutput> metrics = metric_outputs(whole_graph.graph, facts);
  GraphLowering(builder, folded, facts, metrics).run();
}

}  // namespace dstrain::exported
