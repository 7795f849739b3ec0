#include "models/exported/lower/lower_losses.h"

#include <algorithm>
#include <string>
#include <utility>

#include "models/exported/lower/formulas.h"
#include "models/exported/lower/lowering.h"
#include "runtime/ir/rule.h"

namespace dstrain::exported {
namespace {

constexpr int64_t kMean = 1, kSum = 2;  // PyTorch's numbers of reductions

const Node* maker_of(const Graph& graph, TensorRef ref) {
  const auto node = std::ranges::find_if(graph.nodes, [ref](const Node& n) {
    return std::ranges::find(n.outputs, ref) != n.outputs.end();
  });
  return node == graph.nodes.end() ? nullptr : &*node;
}

// Returns whether the program's operation computes it: targets are classes, all of one weight.
bool is_by_class(const Graph& graph, const Node& node) {
  if (node.target != "aten.cross_entropy_loss.default") return false;
  const int64_t reduction = node.whole("reduction");
  return !is_floating(graph.tensor(node.tensor("target")).type) && !node.has("weight") &&
         (reduction == kMean || reduction == kSum);
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

// A cross-entropy whose operands have been computed.
struct Prepared {
  BufferId logits = kNone, targets = kNone;  // in rows of classes; a class for each row
  Builder::CrossEntropy loss;
};

// Returns whether a product alone makes a buffer, and nothing reads it.
bool is_fresh_product(const Program& program, BufferId id) {
  bool fresh = false;
  for (const Instruction& op : program.instructions) {
    if (std::ranges::find(op.reads, id) != op.reads.end()) return false;
    if (op.writes[0] == id) fresh = is_product(axes_of(program, op));
  }
  return fresh;
}

// Returns whether a validation takes the mean over all targets: the loss is one of the labels that texts give, of which the
// last micro-batch may have few.
bool is_mean_of_targets(Lowering& lowering, const LossTerms& losses) {
  if (lowering.builder().options().training || losses.terms.size() != 1) return false;
  const Node* node = maker_of(lowering.graph(), losses.terms[0].tensor);
  if (!node || !is_by_class(lowering.graph(), *node) || node->whole("reduction") != kMean ||
      node->whole("ignore_index") >= 0)
    return false;
  const Value targets = lowering.operand(*node, "target");
  return targets.is_dense() &&
         lowering.builder().program().input(InputRole::labels) == targets.operands[0].buffer;
}

// Returns what makes the sum of losses of rows their mean, times samples.
Value mean_factor(Lowering& lowering, const Node& node, BufferId ids, int64_t rows) {
  const Value counts = lowering.pointwise(
      node, [](std::span<const Formula> x) { return select(less(x[0], 0), 0, 1); },
      {whole(ids, {rows}, ScalarType::i64)}, ScalarType::f32);
  const auto samples = static_cast<float>(lowering.batch());
  return lowering.pointwise(
      node, [samples](std::span<const Formula> x) { return samples / x[0]; },
      {lowering.reduced(Reduction::sum, counts, {0}, false)}, ScalarType::f32);
}

Prepared prepare(Lowering& lowering, const Node& node, const std::string& name, double weight,
                 LossWeight by) {
  Value logits = lowering.operand(node, "self");
  Value targets = lowering.operand(node, "target");
  // Classes are the second dimension, or the only one.
  const int classes = logits.shape.rank > 1 ? 1 : 0;
  const int64_t columns = logits.shape[classes];
  std::vector<int> order;
  for (int d = 0; d < logits.shape.rank; ++d)
    if (d != classes) order.push_back(d);
  order.push_back(classes);
  logits = permute(std::move(logits), order);
  const int64_t rows = logits.shape.elements() / std::max<int64_t>(1, columns);
  logits = lowering.reshaped(logits, {rows, columns});
  targets = lowering.reshaped(targets, {rows});
  const auto ignored = static_cast<float>(node.whole("ignore_index"));
  // The operation leaves out what is negative.
  if (ignored >= 0)
    targets = lowering.pointwise(
        node,
        [ignored](std::span<const Formula> x) { return select(equal(x[0], ignored), -1, x[0]); },
        {targets}, targets.type);
  const BufferId ids = lowering.dense(targets);
  const auto samples = static_cast<float>(lowering.batch());
  // A mean over samples is what the program takes of it.
  Value factor = number(samples);
  if (by == LossWeight::samples && node.whole("reduction") == kMean)
    factor = mean_factor(lowering, node, ids, rows);
  return {.logits = lowering.rows(logits),
          .targets = ids,
          .loss = {.name = name,
                   .weight = static_cast<float>(weight),
                   .by = by,
                   .factor = by == LossWeight::samples ? lowering.dense(factor) : kNone,
                   .smoothing = static_cast<float>(node.real("label_smoothing"))}};
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

void emit_losses(Lowering& lowering, const LossTerms& losses) {
  const LossWeight by =
      is_mean_of_targets(lowering, losses) ? LossWeight::targets : LossWeight::samples;
  Builder& b = lowering.builder();
  std::vector<Prepared> prepared;
  for (size_t t = 0; t < losses.terms.size(); ++t) {
    const LossTerm& term = losses.terms[t];
    const std::string name = t == 0 ? "loss" : "loss" + std::to_string(t + 1);
    const Node* node = maker_of(lowering.graph(), term.tensor);
    if (node && is_by_class(lowering.graph(), *node)) {
      prepared.push_back(prepare(lowering, *node, name, term.weight, by));
      continue;
    }
    Value value = lowering.value(term.tensor);
    value.formula = value.formula * static_cast<float>(lowering.batch());
    b.loss(lowering.dense(value), LossWeight::samples, name, static_cast<float>(term.weight));
  }
  // A cross-entropy overwrites its logits with their gradient.
  for (const Prepared& p : prepared) {
    const bool shared = std::ranges::count(prepared, p.logits, &Prepared::logits) > 1;
    BufferId logits = p.logits;
    if (shared || !is_fresh_product(b.program(), logits)) {
      const Shape shape = b.program().at(logits).shape;
      logits = b.map(Formula::input(0), shape, {{logits, dense_view(shape)}});
    }
    b.cross_entropy(logits, p.targets, p.loss);
  }
}

}  // namespace dstrain::exported
