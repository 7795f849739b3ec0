#include "models/exported/lower/lower_losses.h"

#include <algorithm>
#include <string>
#include <utility>

#include "models/exported/lower/formulas.h"
#include "models/exported/lower/lowering.h"
#include "runtime/ir/rule.h"

namespace dstrain::exported {
namespace {

std::string name_of_term(size_t t) {
  return t == 0 ? "loss" : "loss" + std::to_string(t + 1);
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

// Returns what the sum of losses of rows is multiplied by: their mean times the samples, or times the graph's own weight.
Value factor_of(Lowering& lowering, const Node& node, BufferId ids, int64_t rows,
                const LossMean& mean) {
  const bool divides = is_mean(node);
  if (mean.weight) {
    const Value weight = lowering.value(mean.weight);
    const Value count =
        divides ? count_of(lowering, node, whole(ids, {rows}, ScalarType::i64)) : number(1);
    return lowering.pointwise(
        node, [](std::span<const Formula> x) { return select(equal(x[1], 0), 0, x[0] / x[1]); },
        {weight, count}, ScalarType::f32);
  }
  const auto samples = static_cast<float>(lowering.batch());
  if (!divides) return number(samples);
  return lowering.pointwise(
      node, [samples](std::span<const Formula> x) { return samples / x[0]; },
      {count_of(lowering, node, whole(ids, {rows}, ScalarType::i64))}, ScalarType::f32);
}

Prepared prepare(Lowering& lowering, const Node& node, const std::string& name, double weight,
                 const LossMean& mean) {
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
  const BufferId ids = lowering.dense(lowering.integers(targets));
  // A mean over all targets is what the program takes of the rows' losses themselves.
  const bool plain = mean.by == LossWeight::targets && !mean.weight;
  return {
      .logits = lowering.rows(logits),
      .targets = ids,
      .loss = {.name = name,
               .weight = static_cast<float>(weight),
               .by = mean.by,
               .factor = plain ? kNone
                               : lowering.exact(factor_of(
                                     lowering, node, ids,
                                     lowering.builder().program().at(ids).shape.elements(), mean)),
               .smoothing = static_cast<float>(node.real("label_smoothing"))}};
}

}  // namespace

void emit_losses(Lowering& lowering, const LossTerms& losses, const LossMean& mean,
                 const std::vector<GraphOutput>& metrics) {
  Builder& b = lowering.builder();
  const std::vector<const Node*> at_end = cross_entropies(lowering.graph(), losses);
  std::vector<Prepared> prepared;
  for (size_t t = 0; t < losses.terms.size(); ++t) {
    const LossTerm& term = losses.terms[t];
    const std::string name = name_of_term(t);
    const Node* node = maker_of(lowering.graph(), term.tensor);
    if (std::ranges::find(at_end, node) != at_end.end()) {
      prepared.push_back(prepare(lowering, *node, name, term.weight, mean));
      continue;
    }
    Value value = lowering.value(term.tensor);
    if (value.shape.elements() != 1)
      fail_user("the loss {} has the shape {}: expected a fraction without dimensions",
                lowering.graph().tensor(term.tensor).name, to_string(value.shape));
    if (mean.weight) {
      Node self;
      self.name = name;
      self.target = "loss";
      value = weighed(lowering, node ? *node : self, value, lowering.value(mean.weight));
    } else {
      value.formula = value.formula * static_cast<float>(lowering.batch());
    }
    b.loss(lowering.dense(value), mean.by, name, static_cast<float>(term.weight));
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
  for (size_t t = 0; t < losses.terms.size(); ++t)
    for (const GraphOutput& metric : metrics)
      if (metric.tensor == losses.terms[t].tensor) b.report_loss(name_of_term(t), metric.name);
}

}  // namespace dstrain::exported
