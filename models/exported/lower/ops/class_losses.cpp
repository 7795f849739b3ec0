// Losses of classes as general operations: those that the program's cross-entropy has not.
#include <algorithm>
#include <span>
#include <utility>

#include "models/exported/lower/formulas.h"
#include "models/exported/lower/operators.h"
#include "models/exported/lower/ops/lookups.h"
#include "models/exported/lower/reductions.h"

namespace dstrain::exported {
namespace {

using Formulas = std::span<const Formula>;

Value sum_of(Lowering& l, const Value& x) {
  return l.reduced(Reduction::sum, x, all_dimensions(x), false);
}

Value times(Lowering& l, const Node& node, const Value& a, const Value& b) {
  return l.pointwise(
      node, [](Formulas f) { return f[0] * f[1]; }, {a, b}, ScalarType::f32);
}

// Sets a node to the losses of samples, their sum, or their sum over that of `weights`.
void set_row_losses(Lowering& l, const Node& node, const Value& losses, const Value& weights,
                    const Shape& of_samples) {
  const int64_t reduction = node.whole("reduction");
  if (reduction == 0) return l.set(node, l.reshaped(losses, of_samples));
  const Value sum = sum_of(l, losses);
  if (reduction != 1) return l.set(node, sum);
  l.set(node, l.pointwise(
                  node, [](Formulas f) { return f[0] / f[1]; }, {sum, sum_of(l, weights)},
                  ScalarType::f32));
}

// Returns x (samples, classes, others...) as rows of classes; `of_samples` gets the shape that a loss of each has.
Value by_classes(Lowering& l, const Value& x, Shape& of_samples) {
  const int classes = x.shape.rank > 1 ? 1 : 0;
  std::vector<int> order;
  for (int d = 0; d < x.shape.rank; ++d)
    if (d != classes) {
      order.push_back(d);
      of_samples.append(x.shape[d]);
    }
  order.push_back(classes);
  return l.reshaped(permute(x, order), {of_samples.elements(), x.shape[classes]});
}

// The losses of logarithms of probabilities (rows, classes), where targets (rows) are classes. `smoothing`: the share of the
// target that all classes have.
void set_class_losses(Lowering& l, const Node& node, const Value& logarithms, const Value& targets,
                      float smoothing, const Shape& of_samples) {
  const int64_t rows = logarithms.shape[0], classes = logarithms.shape[1];
  const auto ignored = static_cast<float>(node.whole("ignore_index"));
  const Value counted = l.computed(l.pointwise(
      node, [ignored](Formulas f) { return 1 - equal(f[0], ignored); }, {targets},
      ScalarType::f32));
  const Value index = l.integers(l.pointwise(
      node, [](Formulas f) { return select(f[1], f[0], 0); }, {targets, counted}, ScalarType::i64));
  const Value own = taken(l, logarithms, {rows}, {{index, 1}}, {0, -1});
  std::optional<Value> of_classes;
  Value weights = counted;
  if (node.has("weight")) {
    of_classes = l.operand(node, "weight");
    weights = times(l, node, counted, taken(l, *of_classes, {rows}, {{index, 0}}, {-1}));
  }
  // What does not count may be infinite.
  Value losses = l.pointwise(
      node, [](Formulas f) { return select(f[0], -(f[1] * f[2]), 0); }, {counted, weights, own},
      ScalarType::f32);
  if (smoothing > 0) {
    Value of_all = of_classes ? times(l, node, logarithms, *of_classes) : logarithms;
    of_all = l.reduced(Reduction::sum, of_all, {1}, false);
    const float share = smoothing / static_cast<float>(classes);
    losses = l.pointwise(
        node, [=](Formulas f) { return (1 - smoothing) * f[0] - select(f[1], share * f[2], 0); },
        {losses, counted, of_all}, ScalarType::f32);
  }
  set_row_losses(l, node, losses, weights, of_samples);
}

void lower_nll(Lowering& l, const Node& node) {
  Shape of_samples;
  const Value logarithms = by_classes(l, l.operand(node, "self"), of_samples);
  const Value targets = l.reshaped(l.operand(node, "target"), {logarithms.shape[0]});
  set_class_losses(l, node, l.computed(logarithms), targets, 0, of_samples);
}

void lower_cross_entropy(Lowering& l, const Node& node) {
  Shape of_samples;
  const Value logits = by_classes(l, l.operand(node, "self"), of_samples);
  const Value logarithms = l.computed(log_softmax_of(l, node, logits, 1));
  const Value target = l.operand(node, "target");
  const float smoothing = Lowering::real(node, "label_smoothing");
  if (!is_floating(target.type))
    return set_class_losses(l, node, logarithms, l.reshaped(target, {logits.shape[0]}), smoothing,
                            of_samples);
  // Probabilities of all classes.
  Shape same;
  const Value probabilities = by_classes(l, target, same);
  const float share = smoothing / static_cast<float>(logits.shape[1]);
  Value terms = l.pointwise(
      node,
      [=](Formulas f) {
        return smoothing > 0 ? -(f[0] * ((1 - smoothing) * f[1] + share)) : -(f[0] * f[1]);
      },
      {logarithms, probabilities}, ScalarType::f32);
  if (node.has("weight")) terms = times(l, node, terms, l.operand(node, "weight"));
  set_row_losses(l, node, l.reduced(Reduction::sum, terms, {1}, false),
                 expand(number(1), {logits.shape[0]}), of_samples);
}

constexpr LoweredOp kClassLosses[] = {
    {"aten.cross_entropy_loss.default", lower_cross_entropy},
    {"aten.nll_loss.default", lower_nll},
    {"aten.nll_loss2d.default", lower_nll},
    {"aten.nll_loss_nd.default", lower_nll},
};

}  // namespace

std::span<const LoweredOp> class_loss_operators() {
  return kClassLosses;
}

}  // namespace dstrain::exported
