// Operators that replace a part of a tensor, or bring its elements into another order.
#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "models/exported/lower/operators.h"
#include "models/exported/lower/ops/lookups.h"

namespace dstrain::exported {
namespace {

using Formulas = std::span<const Formula>;

// A tensor of `self`'s shape with the elements of another one.
void lower_copy(Lowering& l, const Node& node) {
  const Value source = l.operand(node, node.find("src") ? "src" : "value");
  Value copied = expand(source, l.shape_of(node.outputs[0]));
  if (is_integer(l.result(node).type) && !is_integer(source.type)) copied = l.integers(copied);
  l.set(node, std::move(copied));
}

// Returns self with other elements from `start` of a dimension on.
Value with_part(Lowering& l, const Node& node, const Value& self, const Value& part, int dimension,
                int64_t start) {
  if (part.shape == self.shape) return part;
  Builder::Seen placed = l.seen(part);
  const auto d = static_cast<size_t>(dimension);
  placed.view.offset -= start * placed.view.strides[d];
  placed.view.begin[d] = start;
  placed.view.end[d] = start + part.shape[dimension];
  const Builder::Seen below = l.seen(self);
  const bool integers = is_integer(l.result(node).type);
  const Formula formula = select(Formula::inside(1), Formula::input(1), Formula::input(0));
  const BufferId id = l.builder().map(formula, space_of(self.shape), {below, placed},
                                      integers ? std::optional(DType::i32) : std::nullopt);
  return whole(id, self.shape, self.type);
}

void lower_select_scatter(Lowering& l, const Node& node) {
  const Value self = l.operand(node, "self");
  const int d = l.dimension(node, "dim", self.shape.rank);
  const int64_t index = node.whole("index");
  l.set(node, with_part(l, node, self, unsqueeze(l.operand(node, "src"), d), d,
                        index < 0 ? index + self.shape[d] : index));
}

void lower_slice_scatter(Lowering& l, const Node& node) {
  const Value self = l.operand(node, "self"), part = l.operand(node, "src");
  if (node.whole("step") != 1)
    Lowering::fail(node, "replaces each {}th element, which is not supported", node.whole("step"));
  const int d = l.dimension(node, "dim", self.shape.rank);
  const int64_t size = self.shape[d], start = node.has("start") ? node.whole("start") : 0;
  l.set(node, with_part(l, node, self, part, d,
                        std::clamp<int64_t>(start < 0 ? start + size : start, 0, size)));
}

// Elements on one side of a diagonal, 0 on the other.
template <bool kLower>
void lower_triangle(Lowering& l, const Node& node) {
  const Value x = l.operand(node, "self");
  const int64_t rows = x.shape[-2], columns = x.shape[-1], diagonal = node.whole("diagonal");
  std::vector<float> inside;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      inside.push_back((kLower ? j - i <= diagonal : j - i >= diagonal) ? 1.0f : 0.0f);
  l.set(node, l.pointwise(
                  node, [](Formulas f) { return select(f[1], f[0], 0); },
                  {x, l.list(node, "triangle", {rows, columns}, inside)}, x.type));
}

void lower_flip(Lowering& l, const Node& node) {
  Value x = l.operand(node, "self");
  for (const int64_t stated : node.wholes("dims")) {
    const int d = l.dimension(node, stated, x.shape.rank);
    std::vector<int32_t> places(static_cast<size_t>(x.shape[d]));
    std::iota(places.rbegin(), places.rend(), 0);
    x = along(l, node, fmt::format("places_{}", d), x, d, places);
  }
  l.set(node, x);
}

// The elements of dimensions moved on, and the last ones first.
void lower_roll(Lowering& l, const Node& node) {
  Value x = l.operand(node, "self");
  const Shape shape = x.shape;
  std::vector<int64_t> dimensions = node.wholes("dims");
  const std::vector<int64_t> shifts = node.wholes("shifts");
  if (dimensions.empty()) {
    x = l.reshaped(x, {shape.elements()});
    dimensions = {0};
  }
  for (size_t i = 0; i < dimensions.size(); ++i) {
    const int d = l.dimension(node, dimensions[i], x.shape.rank);
    const int64_t size = x.shape[d], shift = ((shifts.at(i) % size) + size) % size;
    if (shift == 0) continue;
    x = l.computed(x);
    x = joined(l, {slice(x, d, size - shift, shift), slice(x, d, 0, size - shift)}, d);
  }
  l.set(node, l.reshaped(x, shape));
}

void lower_repeat_each(Lowering& l, const Node& node) {
  Value x = l.operand(node, "self");
  if (!node.has("dim")) x = l.reshaped(x, {x.shape.elements()});
  const int d = node.has("dim") ? l.dimension(node, "dim", x.shape.rank) : 0;
  Value apart = unsqueeze(x, d + 1);
  Shape shape = apart.shape;
  shape.dims[static_cast<size_t>(d) + 1] = node.whole("repeats");
  l.set(node, l.reshaped(expand(std::move(apart), shape), l.shape_of(node.outputs[0])));
}

// (samples..., channels * r * r, h, w) -> (samples..., channels, h * r, w * r), and back.
template <bool kApart>
void lower_pixel_shuffle(Lowering& l, const Node& node) {
  const Value x = l.operand(node, "self");
  const Shape to = l.shape_of(node.outputs[0]);
  const int64_t r = node.whole(kApart ? "upscale_factor" : "downscale_factor");
  const Shape& small = kApart ? x.shape : to;
  const int64_t channels = (kApart ? to : x.shape)[-3], h = small[-2], w = small[-1];
  const int64_t samples = x.shape.elements() / (channels * h * w * r * r);
  if constexpr (kApart) {
    const int order[] = {0, 1, 4, 2, 5, 3};
    l.set(node, l.reshaped(permute(l.reshaped(x, {samples, channels, r, r, h, w}), order), to));
  } else {
    const int order[] = {0, 1, 3, 5, 2, 4};
    l.set(node, l.reshaped(permute(l.reshaped(x, {samples, channels, h, r, w, r}), order), to));
  }
}

constexpr LoweredOp kReplacements[] = {
    {"aten.copy.default", lower_copy},
    {"aten.fill.Scalar", lower_copy},
    {"aten.fill.Tensor", lower_copy},
    {"aten.flip.default", lower_flip},
    {"aten.pixel_shuffle.default", lower_pixel_shuffle<true>},
    {"aten.pixel_unshuffle.default", lower_pixel_shuffle<false>},
    {"aten.repeat_interleave.self_int", lower_repeat_each},
    {"aten.roll.default", lower_roll},
    {"aten.select_scatter.default", lower_select_scatter},
    {"aten.slice_scatter.default", lower_slice_scatter},
    {"aten.tril.default", lower_triangle<true>},
    {"aten.triu.default", lower_triangle<false>},
};

}  // namespace

std::span<const LoweredOp> replacement_operators() {
  return kReplacements;
}

}  // namespace dstrain::exported
