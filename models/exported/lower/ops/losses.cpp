// Losses, and dropout.
#include "runtime/ir/formula/losses.h"

#include <cmath>
#include <utility>

#include "models/exported/lower/formulas.h"
#include "models/exported/lower/operators.h"
#include "models/exported/lower/reductions.h"

namespace dstrain::exported {
namespace {

using Formulas = std::span<const Formula>;

constexpr int64_t kNoReduction = 0, kMean = 1;  // PyTorch's numbers of reductions

// Sets a node to the losses of elements, their mean or their sum.
void set_losses(Lowering& l, const Node& node, const Value& losses) {
  const int64_t reduction = node.whole("reduction");
  if (reduction == kNoReduction) return l.set(node, losses);
  std::vector<int> all;
  for (int d = 0; d < losses.shape.rank; ++d) all.push_back(d);
  l.set(node, reduction == kMean ? mean_of(l, node, losses, all, false)
                                 : l.reduced(Reduction::sum, losses, all, false));
}

// Lowers a loss that compares elements: `f` of what the model says and what is right.
template <class F>
void lower_elements(Lowering& l, const Node& node, const F& f) {
  set_losses(l, node,
             l.pointwise(
                 node, [&f](Formulas x) { return f(x[0], x[1]); },
                 {l.operand(node, "self"), l.operand(node, "target")}, ScalarType::f32));
}

void lower_smooth_l1(Lowering& l, const Node& node) {
  const float beta = Lowering::real(node, "beta");
  lower_elements(l, node, [beta](const Formula& x, const Formula& t) {
    return beta == 0 ? absolute_error(x, t) : smooth_absolute_error(x, t, beta);
  });
}

void lower_huber(Lowering& l, const Node& node) {
  const float delta = Lowering::real(node, "delta");
  lower_elements(l, node, [delta](const Formula& x, const Formula& t) {
    return delta * smooth_absolute_error(x, t, delta);
  });
}

template <Formula (*kLoss)(const Formula&, const Formula&)>
void lower_bce(Lowering& l, const Node& node) {
  const Value x = l.operand(node, "self"), target = l.operand(node, "target");
  Value losses = l.pointwise(
      node, [](Formulas f) { return kLoss(f[0], f[1]); }, {x, target}, ScalarType::f32);
  if (node.find("pos_weight") && node.has("pos_weight"))
    losses = l.pointwise(
        node,
        [](Formulas f) {
          // The target's part of the loss, -log(sigmoid(x)), counts so many times.
          return f[0] + (f[3] - 1) * f[2] *
                            (maximum(-f[1], 0) + logarithm(1 + exponential(-absolute(f[1]))));
        },
        {losses, x, target, l.operand(node, "pos_weight")}, ScalarType::f32);
  if (node.has("weight"))
    losses = l.pointwise(
        node, [](Formulas f) { return f[0] * f[1]; }, {losses, l.operand(node, "weight")},
        ScalarType::f32);
  set_losses(l, node, losses);
}

// target * (log(target) - x), 0 where the target is 0.
void lower_kl_div(Lowering& l, const Node& node) {
  const bool logarithms = node.flag("log_target");
  lower_elements(l, node, [logarithms](const Formula& x, const Formula& t) {
    if (logarithms) return exponential(t) * (t - x);
    return select(less(0, t), t * (logarithm(maximum(t, 1e-38f)) - x), 0);
  });
}

// Dropout by the counter, of rows of a sample each.
void lower_dropout(Lowering& l, const Node& node) {
  const std::string_view argument = node.find("self") ? "self" : "input";
  const Value x = l.operand(node, argument);
  const bool on = node.find("train") == nullptr || !node.has("train") || node.flag("train");
  const double p = node.real("p");
  for (size_t i = 1; i < node.outputs.size(); ++i)
    if (node.outputs[i] && l.is_used(node.outputs[i]))
      Lowering::fail(node, "gives its mask to other operators, which is not supported");
  l.set(node, on ? dropped(l, node, x, p) : x);
}

constexpr LoweredOp kLosses[] = {
    {"aten.binary_cross_entropy.default", lower_bce<binary_cross_entropy>},
    {"aten.binary_cross_entropy_with_logits.default", lower_bce<binary_cross_entropy_of_logit>},
    {"aten.dropout.default", lower_dropout},
    {"aten.huber_loss.default", lower_huber},
    {"aten.kl_div.default", lower_kl_div},
    {"aten.l1_loss.default",
     [](Lowering& l, const Node& node) { lower_elements(l, node, absolute_error); }},
    {"aten.mse_loss.default",
     [](Lowering& l, const Node& node) { lower_elements(l, node, squared_error); }},
    {"aten.native_dropout.default", lower_dropout},
    {"aten.smooth_l1_loss.default", lower_smooth_l1},
};

}  // namespace

Value dropped(Lowering& l, const Node& node, const Value& x, double p) {
  if (p == 0 || !l.builder().options().training) return x;
  if (x.shape.rank < 2 || x.shape[0] % l.batch() != 0)
    Lowering::fail(node, "drops elements of {}: expected samples first", to_string(x.shape));
  const int64_t rows = x.shape.elements() / x.shape[-1];
  const BufferId dense = l.rows(l.reshaped(x, {rows, x.shape[-1]}));
  return whole(l.builder().dropout(dense, rows / l.batch(), p), x.shape, x.type);
}

std::span<const LoweredOp> loss_operators() {
  return kLosses;
}

}  // namespace dstrain::exported
