// Convolutions and pooling, by windows.
#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "models/exported/lower/operators.h"

namespace dstrain::exported {
namespace {

// Returns the number of an argument's list for a dimension, which may be one for all.
int64_t at(const std::vector<int64_t>& list, int dimension) {
  return list.size() == 1 ? list[0] : list.at(static_cast<size_t>(dimension));
}

// The windows of x (samples, channels, sizes...) over its last dimensions, with channels last.
struct Windows {
  WindowAttrs attrs{};
  Shape out{};  // sizes of the result
  int dimensions = 0;
};

// Returns x (samples, channels, sizes...) with channels last.
Value channels_last(const Value& x) {
  std::vector<int> order{0};
  for (int d = 2; d < x.shape.rank; ++d) order.push_back(d);
  order.push_back(1);
  return permute(x, order);
}

Windows windows_of(const Node& node, const Shape& x, const std::vector<int64_t>& kernel,
                   const std::vector<int64_t>& stride, const std::vector<int64_t>& padding,
                   const std::vector<int64_t>& dilation, const Shape& result) {
  Windows w{.dimensions = x.rank - 2};
  if (w.dimensions < 1 || w.dimensions > WindowAttrs::kDimensions)
    Lowering::fail(node, "walks over {} dimensions: expected 1 to {}", w.dimensions,
                   WindowAttrs::kDimensions);
  w.attrs.planes = x[0];
  w.attrs.channels = x[1];
  auto dimension = w.attrs.dimensions.end() - w.dimensions;
  for (int d = 0; d < w.dimensions; ++d) {
    const int64_t out = result[2 + d];
    *dimension++ = {.size = x[2 + d],
                    .kernel = at(kernel, d),
                    .stride = at(stride, d),
                    .padding = at(padding, d),
                    .dilation = at(dilation, d),
                    .out = out};
    w.out.append(out);
  }
  return w;
}

std::vector<int64_t> wholes_or(const Node& node, std::string_view argument,
                               std::vector<int64_t> otherwise) {
  return node.find(argument) && !node.wholes(argument).empty() ? node.wholes(argument)
                                                               : std::move(otherwise);
}

// Returns the padding of a convolution, on both sides of each dimension.
std::vector<int64_t> padding_of(const Node& node, const Shape& weight,
                                const std::vector<int64_t>& dilation) {
  if (!std::holds_alternative<std::string>(*node.find("padding"))) return node.wholes("padding");
  std::vector<int64_t> padding;
  for (int d = 0; d + 2 < weight.rank; ++d) {
    const int64_t around = at(dilation, d) * (weight[2 + d] - 1);
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

void lower_convolution(Lowering& l, const Node& node) {
  if (node.find("transposed") && node.flag("transposed"))
    Lowering::fail(node, "is transposed, which is not supported");
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
  Value y = alone ? by_channels(l, node, c) : by_groups(l, c);
  if (node.has("bias"))
    y = l.pointwise(
        node, [](std::span<const Formula> f) { return f[0] + f[1]; }, {y, l.operand(node, "bias")},
        y.type);
  l.set(node, l.reshaped(transpose(y, 1, 2), result));
}

// Returns the largest or the sum of each window of x: (samples, channels, windows).
Value reduced_windows(Lowering& l, Reduction kind, const Value& x, const Windows& w) {
  const Value elements =
      whole(l.builder().window(l.dense(channels_last(x)), w.attrs),
            {x.shape[0], w.attrs.windows(), w.attrs.kernel(), x.shape[1]}, x.type);
  return transpose(l.reduced(kind, elements, {2}, false), 1, 2);
}

// Returns x with a first dimension of samples, which a pool may leave out, and the same for the result.
Value with_samples(Value x, Shape& result, int dimensions) {
  if (x.shape.rank != dimensions + 1) return x;
  Shape whole_result{1};
  for (int d = 0; d < result.rank; ++d) whole_result.append(result[d]);
  result = whole_result;
  return unsqueeze(std::move(x), 0);
}

template <int kDimensions>
void lower_max_pool(Lowering& l, const Node& node) {
  Shape result = l.shape_of(node.outputs[0]);
  const Value x = with_samples(l.operand(node, "self"), result, kDimensions);
  const std::vector<int64_t> kernel = node.wholes("kernel_size");
  Windows w = windows_of(node, x.shape, kernel, wholes_or(node, "stride", kernel),
                         node.wholes("padding"), node.wholes("dilation"), result);
  w.attrs.outside = -std::numeric_limits<float>::infinity();
  const Value largest = reduced_windows(l, Reduction::maximum, x, w);
  l.set(node, l.reshaped(largest, l.shape_of(node.outputs[0])));
}

template <int kDimensions>
void lower_average_pool(Lowering& l, const Node& node) {
  Shape result = l.shape_of(node.outputs[0]);
  const Value x = with_samples(l.operand(node, "self"), result, kDimensions);
  const std::vector<int64_t> kernel = node.wholes("kernel_size"), padding = node.wholes("padding");
  const bool padded = std::ranges::any_of(padding, [](int64_t p) { return p > 0; });
  if (node.flag("ceil_mode") || (padded && !node.flag("count_include_pad")))
    Lowering::fail(node,
                   "divides by the number of elements that are inside, which is not supported");
  const Windows w =
      windows_of(node, x.shape, kernel, wholes_or(node, "stride", kernel), padding, {1}, result);
  double count = static_cast<double>(w.attrs.kernel());
  if (node.find("divisor_override") && node.has("divisor_override"))
    count = static_cast<double>(node.whole("divisor_override"));
  Value sum = reduced_windows(l, Reduction::sum, x, w);
  sum.formula = sum.formula * static_cast<float>(1 / count);
  l.set(node, l.reshaped(sum, l.shape_of(node.outputs[0])));
}

// Means of parts of each dimension. Parts of one size are windows.
template <int kDimensions>
void lower_adaptive_average(Lowering& l, const Node& node) {
  Shape result = l.shape_of(node.outputs[0]);
  const Value x = with_samples(l.operand(node, "self"), result, kDimensions);
  std::vector<int64_t> kernel;
  for (int d = 2; d < x.shape.rank; ++d) {
    if (x.shape[d] % result[d] != 0)
      Lowering::fail(node,
                     "divides {} elements into {} parts of different sizes, which is not "
                     "supported",
                     x.shape[d], result[d]);
    kernel.push_back(x.shape[d] / result[d]);
  }
  const Windows w = windows_of(node, x.shape, kernel, kernel, {0}, {1}, result);
  Value sum = reduced_windows(l, Reduction::sum, x, w);
  sum.formula = sum.formula * static_cast<float>(1 / static_cast<double>(w.attrs.kernel()));
  l.set(node, l.reshaped(sum, l.shape_of(node.outputs[0])));
}

constexpr LoweredOp kConvolutions[] = {
    {"aten._adaptive_avg_pool2d.default", lower_adaptive_average<2>},
    {"aten.adaptive_avg_pool1d.default", lower_adaptive_average<1>},
    {"aten.adaptive_avg_pool2d.default", lower_adaptive_average<2>},
    {"aten.adaptive_avg_pool3d.default", lower_adaptive_average<3>},
    {"aten.avg_pool1d.default", lower_average_pool<1>},
    {"aten.avg_pool2d.default", lower_average_pool<2>},
    {"aten.avg_pool3d.default", lower_average_pool<3>},
    {"aten.conv1d.default", lower_convolution},
    {"aten.conv1d.padding", lower_convolution},
    {"aten.conv2d.default", lower_convolution},
    {"aten.conv2d.padding", lower_convolution},
    {"aten.conv3d.default", lower_convolution},
    {"aten.convolution.default", lower_convolution},
    {"aten.max_pool1d.default", lower_max_pool<1>},
    {"aten.max_pool2d.default", lower_max_pool<2>},
    {"aten.max_pool2d_with_indices.default", lower_max_pool<2>},
    {"aten.max_pool3d.default", lower_max_pool<3>},
};

}  // namespace

std::span<const LoweredOp> convolution_operators() {
  return kConvolutions;
}

}  // namespace dstrain::exported
