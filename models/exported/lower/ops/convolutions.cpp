// Convolutions and pooling, by windows.
#include <algorithm>
#include <limits>
#include <utility>

#include "models/exported/lower/operators.h"

namespace dstrain::exported {
namespace {

// Returns the number of an argument's list for a dimension, which may be one for all.
int64_t at(const std::vector<int64_t>& list, int dimension) {
  return list.size() == 1 ? list[0] : list.at(static_cast<size_t>(dimension));
}

// The windows of x (samples, channels, sizes...) over its last dimensions.
struct Windows {
  WindowAttrs attrs{};
  Shape out{};  // sizes of the result
  int dimensions = 0;
};

Windows windows_of(const Node& node, const Shape& x, const std::vector<int64_t>& kernel,
                   const std::vector<int64_t>& stride, const std::vector<int64_t>& padding,
                   const std::vector<int64_t>& dilation, const Shape& result) {
  Windows w{.dimensions = x.rank - 2};
  if (w.dimensions < 1 || w.dimensions > WindowAttrs::kDimensions)
    Lowering::fail(node, "walks over {} dimensions: expected 1 to {}", w.dimensions,
                   WindowAttrs::kDimensions);
  w.attrs.planes = x[0] * x[1];
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

// x (samples, channels, sizes...), weights (outputs, channels of a group, kernel...).
void lower_convolution(Lowering& l, const Node& node) {
  if (node.find("transposed") && node.flag("transposed"))
    Lowering::fail(node, "is transposed, which is not supported");
  const Value x = l.operand(node, "input"), weight = l.operand(node, "weight");
  const Shape result = l.shape_of(node.outputs[0]);
  if (x.shape.rank != weight.shape.rank)
    Lowering::fail(node, "has an input of {} without samples", to_string(x.shape));
  std::vector<int64_t> kernel;
  for (int d = 2; d < weight.shape.rank; ++d) kernel.push_back(weight.shape[d]);
  const std::vector<int64_t> dilation = node.wholes("dilation");
  const Windows w = windows_of(node, x.shape, kernel, node.wholes("stride"),
                               padding_of(node, weight.shape, dilation), dilation, result);
  const int64_t samples = x.shape[0], channels = x.shape[1], groups = node.whole("groups"),
                outputs = weight.shape[0], k = w.attrs.kernel(), n = w.attrs.windows();
  const int64_t inner = channels / groups * k;
  const BufferId windows = l.builder().window(l.dense(x), w.attrs);
  // (samples, groups, windows, channels of a group * kernel) and (samples, groups, outputs of a group, the same).
  const Value seen = transpose(whole(windows, {samples, groups, inner, n}, x.type), 2, 3);
  const Value weights = expand(l.reshaped(weight, {groups, outputs / groups, inner}),
                               {samples, groups, outputs / groups, inner});
  Value y = transpose(l.contracted(seen, weights), 2, 3);
  if (node.has("bias"))
    y = l.pointwise(
        node, [](std::span<const Formula> f) { return f[0] + f[1]; },
        {y, l.reshaped(l.operand(node, "bias"), {groups, outputs / groups, 1})}, y.type);
  l.set(node, l.reshaped(y, result));
}

// Returns the elements of windows: (samples, channels, kernel, windows).
Value elements_of_windows(Lowering& l, const Value& x, const Windows& w) {
  return whole(l.builder().window(l.dense(x), w.attrs),
               {x.shape[0], x.shape[1], w.attrs.kernel(), w.attrs.windows()}, x.type);
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
  const Value largest = l.reduced(Reduction::maximum, elements_of_windows(l, x, w), {2}, false);
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
  Value sum = l.reduced(Reduction::sum, elements_of_windows(l, x, w), {2}, false);
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
  Value sum = l.reduced(Reduction::sum, elements_of_windows(l, x, w), {2}, false);
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
