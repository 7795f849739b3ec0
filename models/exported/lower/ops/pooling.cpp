// Pools, and the elements of windows themselves.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "models/exported/lower/operators.h"
#include "models/exported/lower/ops/windows.h"

namespace dstrain::exported {
namespace {

std::vector<int64_t> wholes_or(const Node& node, std::string_view argument,
                               std::vector<int64_t> otherwise) {
  return node.find(argument) && !node.wholes(argument).empty() ? node.wholes(argument)
                                                               : std::move(otherwise);
}

// Returns the elements of windows: (samples, windows, kernel, channels).
Value elements_of_windows(Lowering& l, const Value& x, const Windows& w) {
  return whole(l.builder().window(l.dense(channels_last(x)), w.attrs),
               {x.shape[0], w.attrs.windows(), w.attrs.kernel(), x.shape[1]}, x.type);
}

// Returns their sums: (samples, channels, windows).
Value sums_of_windows(Lowering& l, const Value& x, const Windows& w) {
  return transpose(l.reduced(Reduction::sum, elements_of_windows(l, x, w), {2}, false), 1, 2);
}

// Returns x with a first dimension of samples, which a pool may leave out, and the same for the result.
Value with_samples(Value x, Shape& result, int dimensions) {
  if (x.shape.rank != dimensions + 1) return x;
  Shape whole_result{1};
  for (int d = 0; d < result.rank; ++d) whole_result.append(result[d]);
  result = whole_result;
  return unsqueeze(std::move(x), 0);
}

// Sets the largest elements of windows; the first one of equal ones has the gradient. Positions come first.
void set_largest(Lowering& l, const Node& node, const Value& x, Windows w) {
  for (size_t i = 1; i < node.outputs.size(); ++i)
    if (node.outputs[i] && l.is_used(node.outputs[i]))
      Lowering::fail(node, "gives the places of its elements to others, which is not supported");
  std::swap(w.attrs.planes, w.attrs.samples);
  const int64_t samples = x.shape[0], channels = x.shape[1];
  const Value positions =
      permute(l.reshaped(x, {samples, channels, w.attrs.positions()}), std::array{2, 0, 1});
  const Value y = whole(l.builder().max_pool(l.rows(positions), w.attrs),
                        {w.attrs.windows(), samples, channels}, x.type);
  l.set(node, l.reshaped(permute(y, std::array{1, 2, 0}), l.shape_of(node.outputs[0])));
}

template <int kDimensions>
void lower_max_pool(Lowering& l, const Node& node) {
  Shape result = l.shape_of(node.outputs[0]);
  const Value x = with_samples(l.operand(node, "self"), result, kDimensions);
  const std::vector<int64_t> kernel = node.wholes("kernel_size");
  set_largest(l, node, x,
              windows_of(node, x.shape, kernel, wholes_or(node, "stride", kernel),
                         node.wholes("padding"), node.wholes("dilation"), result));
}

// Returns how many elements each window divides its sum by: those of the image and, where `padded`, those of its padding,
// but not what is behind.
std::vector<float> counts_of(const Windows& w, bool padded) {
  std::vector<float> counts{1};
  for (auto d = w.attrs.dimensions.end() - w.dimensions; d != w.attrs.dimensions.end(); ++d) {
    std::vector<float> next;
    for (const float before : counts)
      for (int64_t o = 0; o < d->out; ++o) {
        const int64_t begin = o * d->stride - d->padding,
                      end = std::min(begin + d->kernel, d->size + d->padding);
        const int64_t count =
            padded ? end - begin : std::min(end, d->size) - std::max<int64_t>(begin, 0);
        next.push_back(before * static_cast<float>(count));
      }
    counts = std::move(next);
  }
  return counts;
}

template <int kDimensions>
void lower_average_pool(Lowering& l, const Node& node) {
  Shape result = l.shape_of(node.outputs[0]);
  const Value x = with_samples(l.operand(node, "self"), result, kDimensions);
  const std::vector<int64_t> kernel = node.wholes("kernel_size");
  const Windows w = windows_of(node, x.shape, kernel, wholes_or(node, "stride", kernel),
                               node.wholes("padding"), {1}, result);
  Value sum = sums_of_windows(l, x, w);
  const std::vector<float> counts = counts_of(w, node.flag("count_include_pad"));
  if (node.find("divisor_override") && node.has("divisor_override"))
    sum.formula = sum.formula * (1 / static_cast<float>(node.whole("divisor_override")));
  else if (std::ranges::all_of(counts, [&](float count) { return count == counts[0]; }))
    sum.formula = sum.formula * (1 / counts[0]);
  else
    sum = l.pointwise(
        node, [](std::span<const Formula> f) { return f[0] / f[1]; },
        {sum, l.list(node, "counts", {static_cast<int64_t>(counts.size())}, counts)}, x.type);
  l.set(node, l.reshaped(sum, l.shape_of(node.outputs[0])));
}

// Returns the windows of an adaptive pool, whose parts of each dimension have one size; nothing where they have not.
std::optional<Windows> even_parts(const Node& node, const Shape& x, const Shape& result) {
  std::vector<int64_t> kernel;
  for (int d = 2; d < x.rank; ++d) {
    if (x[d] % result[d] != 0) return std::nullopt;
    kernel.push_back(x[d] / result[d]);
  }
  return windows_of(node, x, kernel, kernel, {0}, {1}, result);
}

// Means of parts of each dimension. Parts of one size are windows, others are rows of a product.
template <int kDimensions>
void lower_adaptive_average(Lowering& l, const Node& node) {
  Shape result = l.shape_of(node.outputs[0]);
  Value x = with_samples(l.operand(node, "self"), result, kDimensions);
  if (const std::optional<Windows> w = even_parts(node, x.shape, result)) {
    Value sum = sums_of_windows(l, x, *w);
    sum.formula = sum.formula * static_cast<float>(1 / static_cast<double>(w->attrs.kernel()));
    return l.set(node, l.reshaped(sum, l.shape_of(node.outputs[0])));
  }
  for (int d = 2; d < x.shape.rank; ++d) {
    const int64_t from = x.shape[d], to = result[d];
    std::vector<float> shares(static_cast<size_t>(from * to));
    for (int64_t o = 0; o < to; ++o) {
      const int64_t begin = o * from / to, end = ((o + 1) * from + to - 1) / to;
      for (int64_t i = begin; i < end; ++i)
        shares[static_cast<size_t>(o * from + i)] = 1 / static_cast<float>(end - begin);
    }
    const Value lines = transpose(x, d, x.shape.rank - 1);
    Shape parts = lines.shape;
    parts.dims[static_cast<size_t>(parts.rank - 1)] = to;
    const Value means = l.contracted(l.reshaped(lines, {lines.shape.elements() / from, from}),
                                     l.list(node, fmt::format("shares_{}", d), {to, from}, shares));
    x = transpose(l.reshaped(means, parts), d, parts.rank - 1);
  }
  l.set(node, l.reshaped(x, l.shape_of(node.outputs[0])));
}

template <int kDimensions>
void lower_adaptive_max(Lowering& l, const Node& node) {
  Shape result = l.shape_of(node.outputs[0]);
  const Value x = with_samples(l.operand(node, "self"), result, kDimensions);
  const std::optional<Windows> w = even_parts(node, x.shape, result);
  if (!w)
    Lowering::fail(node, "divides {} into parts of different sizes, which is not supported",
                   to_string(x.shape));
  set_largest(l, node, x, *w);
}

// The elements of windows as columns (samples, channels * kernel, windows), and their sums: F.unfold and F.fold.
template <bool kColumns>
void lower_columns(Lowering& l, const Node& node) {
  const Shape result = l.shape_of(node.outputs[0]);
  const Value x = l.operand(node, "self");
  const Shape& image = kColumns ? x.shape : result;
  if (image.rank != 4) Lowering::fail(node, "has images of {}: expected samples", to_string(image));
  const std::vector<int64_t> kernel = node.wholes("kernel_size"), stride = node.wholes("stride"),
                             padding = node.wholes("padding"), dilation = node.wholes("dilation");
  Shape windows{image[0], image[1]};
  for (int d = 0; d < 2; ++d)
    windows.append((image[2 + d] + 2 * number_at(padding, d) -
                    number_at(dilation, d) * (number_at(kernel, d) - 1) - 1) /
                       number_at(stride, d) +
                   1);
  const Windows w = windows_of(node, image, kernel, stride, padding, dilation, windows);
  const int64_t samples = image[0], channels = image[1], n = w.attrs.windows();
  const Shape of_windows{samples, n, w.attrs.kernel(), channels};
  if constexpr (kColumns) {
    const Value seen =
        whole(l.builder().window(l.dense(channels_last(x)), w.attrs), of_windows, x.type);
    l.set(node, l.reshaped(permute(seen, std::array{0, 3, 2, 1}), result));
  } else {
    const Value seen =
        permute(l.reshaped(x, {samples, channels, w.attrs.kernel(), n}), std::array{0, 3, 2, 1});
    const Value sums = whole(l.builder().window_sums(l.dense(seen), w.attrs),
                             {samples, w.attrs.positions(), channels}, x.type);
    l.set(node, l.reshaped(transpose(sums, 1, 2), result));
  }
}

constexpr LoweredOp kPools[] = {
    {"aten._adaptive_avg_pool2d.default", lower_adaptive_average<2>},
    {"aten.adaptive_avg_pool1d.default", lower_adaptive_average<1>},
    {"aten.adaptive_avg_pool2d.default", lower_adaptive_average<2>},
    {"aten.adaptive_avg_pool3d.default", lower_adaptive_average<3>},
    {"aten.adaptive_max_pool1d.default", lower_adaptive_max<1>},
    {"aten.adaptive_max_pool2d.default", lower_adaptive_max<2>},
    {"aten.adaptive_max_pool3d.default", lower_adaptive_max<3>},
    {"aten.avg_pool1d.default", lower_average_pool<1>},
    {"aten.avg_pool2d.default", lower_average_pool<2>},
    {"aten.avg_pool3d.default", lower_average_pool<3>},
    {"aten.col2im.default", lower_columns<false>},
    {"aten.im2col.default", lower_columns<true>},
    {"aten.max_pool1d.default", lower_max_pool<1>},
    {"aten.max_pool2d.default", lower_max_pool<2>},
    {"aten.max_pool2d_with_indices.default", lower_max_pool<2>},
    {"aten.max_pool3d.default", lower_max_pool<3>},
};

}  // namespace

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
    *dimension++ = {.size = x[2 + d],
                    .kernel = number_at(kernel, d),
                    .stride = number_at(stride, d),
                    .padding = number_at(padding, d),
                    .dilation = number_at(dilation, d),
                    .out = result[2 + d]};
  }
  return w;
}

std::span<const LoweredOp> pool_operators() {
  return kPools;
}

}  // namespace dstrain::exported
