// Operators that normalise.
#include <cmath>
#include <limits>
#include <utility>

#include "models/exported/lower/operators.h"
#include "models/exported/lower/reductions.h"

namespace dstrain::exported {
namespace {

using Formulas = std::span<const Formula>;

// Returns x times weights plus biases, where there are any, which have its last dimensions.
Value affine(Lowering& l, const Node& node, Value x, const Value* weight, const Value* bias) {
  if (weight)
    x = l.pointwise(
        node, [](Formulas f) { return f[0] * f[1]; }, {x, *weight}, x.type);
  if (bias)
    x = l.pointwise(
        node, [](Formulas f) { return f[0] + f[1]; }, {x, *bias}, x.type);
  return x;
}

std::optional<Value> optional_operand(Lowering& l, const Node& node, std::string_view argument) {
  if (!node.has(argument)) return std::nullopt;
  return l.operand(node, argument);
}

// Returns (x - mean) / sqrt(variance + eps) over dimensions.
Value normalised(Lowering& l, const Node& node, const Value& of, const std::vector<int>& dimensions,
                 double eps) {
  const Value x = l.computed(of);
  const Value mean = l.computed(mean_of(l, node, x, dimensions, true));
  const Value variance = variance_of(l, node, x, mean, dimensions, 0, true);
  return l.pointwise(
      node,
      [e = static_cast<float>(eps)](Formulas f) { return (f[0] - f[1]) / square_root(f[2] + e); },
      {x, mean, variance}, x.type);
}

std::vector<int> last_dimensions(const Value& x, size_t count) {
  std::vector<int> dimensions;
  for (int d = x.shape.rank - static_cast<int>(count); d < x.shape.rank; ++d)
    dimensions.push_back(d);
  return dimensions;
}

void lower_layer_norm(Lowering& l, const Node& node) {
  const Value x = l.operand(node, "input");
  const auto weight = optional_operand(l, node, "weight"), bias = optional_operand(l, node, "bias");
  const size_t count = node.wholes("normalized_shape").size();
  const double eps = node.real("eps");
  // The program has an operation for rows.
  const auto w = weight ? l.parameter(*weight) : std::nullopt;
  const auto b = bias ? l.parameter(*bias) : std::nullopt;
  if (count == 1 && w && b) {
    const int64_t columns = x.shape[-1], rows = x.shape.elements() / columns;
    const BufferId id = l.builder().layer_norm(l.rows(l.reshaped(x, {rows, columns})), *w, *b,
                                               static_cast<float>(eps));
    return l.set(node, whole(id, x.shape, x.type));
  }
  l.set(node, affine(l, node, normalised(l, node, x, last_dimensions(x, count), eps),
                     weight ? &*weight : nullptr, bias ? &*bias : nullptr));
}

void lower_rms_norm(Lowering& l, const Node& node) {
  const Value x = l.computed(l.operand(node, "input"));
  const auto weight = optional_operand(l, node, "weight");
  const size_t count = node.wholes("normalized_shape").size();
  const double eps =
      node.has("eps") ? node.real("eps") : double{std::numeric_limits<float>::epsilon()};
  const Value squares = l.pointwise(
      node, [](Formulas f) { return f[0] * f[0]; }, {x}, x.type);
  const Value mean = mean_of(l, node, squares, last_dimensions(x, count), true);
  l.set(
      node,
      affine(l, node,
             l.pointwise(
                 node,
                 [e = static_cast<float>(eps)](Formulas f) { return f[0] / square_root(f[1] + e); },
                 {x, mean}, x.type),
             weight ? &*weight : nullptr, nullptr));
}

// x (samples, channels, ...): groups of channels are normalised together.
void lower_group_norm(Lowering& l, const Node& node) {
  const Value x = l.operand(node, "input");
  const int64_t groups = node.whole("num_groups"), channels = x.shape[1];
  const int64_t inner = x.shape.elements() / (x.shape[0] * channels);
  if (groups < 1 || channels % groups != 0)
    Lowering::fail(node, "divides {} channels into {} groups", channels, groups);
  const Value apart = l.reshaped(x, {x.shape[0], groups, channels / groups, inner});
  Value y = normalised(l, node, apart, {2, 3}, node.real("eps"));
  const auto by_channel = [&](std::string_view argument) -> std::optional<Value> {
    if (!node.has(argument)) return std::nullopt;
    return l.reshaped(l.operand(node, argument), {groups, channels / groups, 1});
  };
  const auto weight = by_channel("weight"), bias = by_channel("bias");
  y = affine(l, node, std::move(y), weight ? &*weight : nullptr, bias ? &*bias : nullptr);
  l.set(node, l.reshaped(y, x.shape));
}

// Dimensions but the second one, of channels.
std::vector<int> all_but_channels(const Value& x) {
  std::vector<int> dimensions;
  for (int d = 0; d < x.shape.rank; ++d)
    if (d != 1) dimensions.push_back(d);
  return dimensions;
}

// Returns values of channels with the dimensions of x but the first one.
Value by_channel(Value value, const Value& x) {
  for (int d = 2; d < x.shape.rank; ++d) value = unsqueeze(std::move(value), d - 1);
  return value;
}

// (x - mean) / sqrt(variance + eps) times weights plus biases, of channels each.
Value channel_norm(Lowering& l, const Node& node, const Value& x, const Value& mean,
                   const Value& variance) {
  const auto eps = static_cast<float>(node.real("eps"));
  const Value y = l.pointwise(
      node, [eps](Formulas f) { return (f[0] - f[1]) / square_root(f[2] + eps); },
      {x, by_channel(mean, x), by_channel(variance, x)}, x.type);
  std::optional<Value> weight, bias;
  if (node.has("weight")) weight = by_channel(l.operand(node, "weight"), x);
  if (node.has("bias")) bias = by_channel(l.operand(node, "bias"), x);
  return affine(l, node, y, weight ? &*weight : nullptr, bias ? &*bias : nullptr);
}

// Lets every step move running statistics towards the mean of those of its micro-batches.
void update_running(Lowering& l, const Node& node, std::string_view argument, Value statistics) {
  const auto momentum = static_cast<float>(node.real("momentum"));
  statistics.formula = statistics.formula * static_cast<float>(l.batch());
  const std::optional<BufferId> held = l.registered(node, argument);
  if (!held) Lowering::fail(node, "has {} that no buffer of the module is", argument);
  l.builder().update_buffer(*held, l.dense(statistics),
                            {.keep = 1 - momentum, .share = momentum, .per_sample = true});
}

// Lets every step move both running statistics, of `values` of each channel.
void update_both(Lowering& l, const Node& node, const Value& mean, const Value& variance,
                 double values) {
  update_running(l, node, "running_mean", mean);
  update_running(l, node, "running_var", scaled(variance, values / (values - 1)));
}

// The operation `batch_norm`, of rows that have the channels last in memory. Returns whether it takes the node's weights.
bool norm_by_operation(Lowering& l, const Node& node, const Value& x, double values) {
  const auto weight = optional_operand(l, node, "weight"), bias = optional_operand(l, node, "bias");
  const auto w = weight ? l.parameter(*weight) : std::nullopt;
  const auto b = bias ? l.parameter(*bias) : std::nullopt;
  if (!w || !b) return false;
  std::vector<int> order = order_in_memory(x);
  if (order.back() != 1) {
    order = all_but_channels(x);
    order.push_back(1);
  }
  const Value rows = permute(x, order);
  const Builder::BatchNormed normed =
      l.builder().batch_norm(l.rows(rows), *w, *b, static_cast<float>(node.real("eps")));
  const Shape channels{x.shape[1]};
  l.set(node, permute(whole(normed.y, rows.shape, x.type), inverse_of(order)));
  update_both(l, node, whole(normed.mean, channels, ScalarType::f32),
              whole(normed.variance, channels, ScalarType::f32), values);
  return true;
}

// The statistics are those of the micro-batch; a validation takes the running ones.
void lower_batch_norm(Lowering& l, const Node& node) {
  const Value x = l.computed(l.operand(node, "input"));
  const bool trains = node.flag("training") && l.builder().options().training;
  if (!trains)
    return l.set(node, channel_norm(l, node, x, l.operand(node, "running_mean"),
                                    l.operand(node, "running_var")));
  const std::vector<int> dimensions = all_but_channels(x);
  const int64_t values = x.shape.elements() / x.shape[1];
  const auto count = static_cast<double>(values);
  if (values < 2) Lowering::fail(node, "has one value of each channel: expected two or more");
  if (norm_by_operation(l, node, x, count)) return;
  const Value mean = l.computed(mean_of(l, node, x, dimensions, false));
  const Value variance =
      l.computed(variance_of(l, node, x, by_channel(mean, x), dimensions, 0, false));
  l.set(node, channel_norm(l, node, x, mean, variance));
  update_both(l, node, mean, variance, count);
}

// Running statistics that stay as they are.
void lower_fixed_batch_norm(Lowering& l, const Node& node) {
  l.set(node, channel_norm(l, node, l.computed(l.operand(node, "input")),
                           l.operand(node, "running_mean"), l.operand(node, "running_var")));
}

constexpr LoweredOp kNorms[] = {
    {"aten._native_batch_norm_legit_functional.default", lower_batch_norm},
    {"aten._native_batch_norm_legit_no_training.default", lower_fixed_batch_norm},
    {"aten._fused_rms_norm.default", lower_rms_norm},
    {"aten.group_norm.default", lower_group_norm},
    {"aten.layer_norm.default", lower_layer_norm},
    {"aten.rms_norm.default", lower_rms_norm},
};

}  // namespace

std::span<const LoweredOp> norm_operators() {
  return kNorms;
}

}  // namespace dstrain::exported
