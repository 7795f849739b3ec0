// Convolutions, by windows.
#include <algorithm>
#include <array>
#include <utility>

#include "models/exported/lower/operators.h"
#include "models/exported/lower/ops/windows.h"

namespace dstrain::exported {
namespace {

// Returns the padding of a convolution, on both sides of each dimension.
std::vector<int64_t> padding_of(const Node& node, const Shape& weight,
                                const std::vector<int64_t>& dilation) {
  if (!std::holds_alternative<std::string>(*node.find("padding"))) return node.wholes("padding");
  std::vector<int64_t> padding;
  for (int d = 0; d + 2 < weight.rank; ++d) {
    const int64_t around = number_at(dilation, d) * (weight[2 + d] - 1);
    if (node.text("padding") == "same" && around % 2 != 0)
      Lowering::fail(node, "pads one side more than the other: expected a kernel of odd size");
    padding.push_back(node.text("padding") == "same" ? around / 2 : 0);
  }
  return padding;
}

// A convolution of x (samples, channels, sizes...) with weights (outputs, channels of a group, kernel...).
struct Convolution {
  Value x{}, weight{};
  Windows windows{};
  int64_t groups = 1;
  int64_t samples() const { return x.shape[0]; }
  int64_t group_channels() const { return weight.shape[1]; }
  int64_t group_outputs() const { return weight.shape[0] / groups; }
  // Returns whether each window has one position, and each position one window.
  bool is_pointwise() const {
    return std::ranges::all_of(windows.attrs.dimensions, [](const WindowAttrs::Dimension& d) {
      return d.kernel == 1 && d.stride == 1 && d.padding == 0;
    });
  }
};

// Each channel by itself: (samples, windows, channels). The windows are (samples, windows, kernel, channels).
Value by_channels(Lowering& l, const Node& node, const Convolution& c) {
  const WindowAttrs& w = c.windows.attrs;
  const int64_t kernel = w.kernel(), channels = c.groups;
  const Value seen = whole(l.builder().window(l.dense(channels_last(c.x)), w),
                           {c.samples(), w.windows(), kernel, channels}, c.x.type);
  const Value weights = transpose(l.reshaped(c.weight, {channels, kernel}), 0, 1);
  const Value products = l.pointwise(
      node, [](std::span<const Formula> f) { return f[0] * f[1]; }, {seen, weights}, c.x.type);
  return l.reduced(Reduction::sum, products, {2}, false);
}

// Products of the windows of each group and its weights: (samples, windows, outputs).
Value by_groups(Lowering& l, const Convolution& c) {
  WindowAttrs w = c.windows.attrs;
  const int64_t inner = w.kernel() * c.group_channels(), outputs = c.group_outputs();
  const int64_t rows = c.samples() * w.windows(), positions = w.positions();
  // (groups, samples, positions, channels of a group)
  const Value apart =
      permute(l.reshaped(c.x, {c.samples(), c.groups, c.group_channels(), positions}),
              std::array{1, 0, 3, 2});
  Value seen = apart;
  if (!c.is_pointwise()) {
    w.planes = c.groups * c.samples();
    w.channels = c.group_channels();
    seen = whole(l.builder().window(l.dense(apart), w), {c.groups, rows, inner}, c.x.type);
  }
  const Value weights =
      transpose(l.reshaped(c.weight, {c.groups, outputs, c.group_channels(), w.kernel()}), 2, 3);
  const Value y = l.contracted(l.reshaped(seen, {c.groups, rows, inner}),
                               l.reshaped(weights, {c.groups, outputs, inner}));
  const Value by_sample =
      permute(l.reshaped(y, {c.groups, c.samples(), w.windows(), outputs}), std::array{1, 2, 0, 3});
  return l.reshaped(by_sample, {c.samples(), w.windows(), c.groups * outputs});
}

// Returns whether the operation `convolution` takes it: it computes whole vectors of channels and outputs.
bool has_operation(const Lowering& l, const Convolution& c) {
  constexpr int64_t kVector = 16;
  return c.groups == 1 && c.group_channels() >= kVector && c.group_outputs() >= kVector &&
         l.parameter(c.weight);
}

// Products of the windows and the weights, computed with positions first: (samples, windows, outputs).
Value by_positions(Lowering& l, const Convolution& c) {
  ConvolutionAttrs attrs{.windows = c.windows.attrs, .outputs = c.group_outputs()};
  attrs.windows.planes = 1;
  attrs.windows.samples = c.samples();
  const int64_t positions = attrs.windows.positions();
  const Value x =
      permute(l.reshaped(c.x, {c.samples(), c.group_channels(), positions}), std::array{2, 0, 1});
  const BufferId y = l.builder().convolution(l.rows(x), *l.parameter(c.weight), attrs);
  return permute(whole(y, {attrs.windows.windows(), c.samples(), attrs.outputs}, c.x.type),
                 std::array{1, 0, 2});
}

// Returns y (samples, positions, outputs) plus biases of outputs, where there are some, as the result.
Value with_bias(Lowering& l, const Node& node, Value y, const Shape& result) {
  if (node.has("bias"))
    y = l.pointwise(
        node, [](std::span<const Formula> f) { return f[0] + f[1]; }, {y, l.operand(node, "bias")},
        y.type);
  return l.reshaped(transpose(y, 1, 2), result);
}

// x (samples, channels, sizes...), weights (channels, outputs of a group, kernel...): each position of x is a window of the
// result, to which it adds its products with the weights.
void lower_transposed(Lowering& l, const Node& node) {
  const Value x = l.operand(node, "input"), weight = l.operand(node, "weight");
  const Shape result = l.shape_of(node.outputs[0]);
  if (x.shape.rank != weight.shape.rank)
    Lowering::fail(node, "has an input of {} without samples", to_string(x.shape));
  std::vector<int64_t> kernel;
  for (int d = 2; d < weight.shape.rank; ++d) kernel.push_back(weight.shape[d]);
  WindowAttrs w = windows_of(node, result, kernel, node.wholes("stride"), node.wholes("padding"),
                             node.wholes("dilation"), x.shape)
                      .attrs;
  const int64_t samples = x.shape[0], groups = node.whole("groups"), outputs = weight.shape[1],
                inputs = x.shape[1] / groups, n = w.windows(), inner = w.kernel() * outputs;
  // (groups, samples, windows, inputs of a group) and (groups, kernel, outputs of a group, inputs of a group).
  const Value positions =
      permute(l.reshaped(x, {samples, groups, inputs, n}), std::array{1, 0, 3, 2});
  const Value weights =
      permute(l.reshaped(weight, {groups, inputs, outputs, w.kernel()}), std::array{0, 3, 2, 1});
  const Value products = l.contracted(l.reshaped(positions, {groups, samples * n, inputs}),
                                      l.reshaped(weights, {groups, inner, inputs}));
  w.planes = groups * samples;
  w.channels = outputs;
  const Value sums = whole(l.builder().window_sums(l.dense(products), w),
                           {groups, samples, w.positions(), outputs}, x.type);
  const Value by_sample =
      l.reshaped(permute(sums, std::array{1, 2, 0, 3}), {samples, w.positions(), groups * outputs});
  l.set(node, with_bias(l, node, by_sample, result));
}

void lower_convolution(Lowering& l, const Node& node) {
  if (node.find("transposed") && node.flag("transposed")) return lower_transposed(l, node);
  Convolution c{.x = l.operand(node, "input"), .weight = l.operand(node, "weight")};
  const Shape result = l.shape_of(node.outputs[0]);
  if (c.x.shape.rank != c.weight.shape.rank)
    Lowering::fail(node, "has an input of {} without samples", to_string(c.x.shape));
  std::vector<int64_t> kernel;
  for (int d = 2; d < c.weight.shape.rank; ++d) kernel.push_back(c.weight.shape[d]);
  const std::vector<int64_t> dilation = node.wholes("dilation");
  c.windows = windows_of(node, c.x.shape, kernel, node.wholes("stride"),
                         padding_of(node, c.weight.shape, dilation), dilation, result);
  c.groups = node.whole("groups");
  const bool alone = c.group_channels() == 1 && c.group_outputs() == 1 && c.groups > 1;
  l.set(node, with_bias(l, node,
                        has_operation(l, c) ? by_positions(l, c)
                        : alone             ? by_channels(l, node, c)
                                            : by_groups(l, c),
                        result));
}

constexpr LoweredOp kConvolutions[] = {
    {"aten.conv1d.default", lower_convolution},
    {"aten.conv1d.padding", lower_convolution},
    {"aten.conv2d.default", lower_convolution},
    {"aten.conv2d.padding", lower_convolution},
    {"aten.conv3d.default", lower_convolution},
    {"aten.conv_transpose1d.default", lower_transposed},
    {"aten.conv_transpose2d.input", lower_transposed},
    {"aten.conv_transpose3d.input", lower_transposed},
    {"aten.convolution.default", lower_convolution},
};

}  // namespace

std::span<const LoweredOp> convolution_operators() {
  return kConvolutions;
}

}  // namespace dstrain::exported
