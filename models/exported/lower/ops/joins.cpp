// Operators that put tensors side by side, and that add elements around one.
#include <algorithm>
#include <array>
#include <utility>

#include "models/exported/lower/operators.h"

namespace dstrain::exported {
namespace {

// What a join reads at a time, so that the map that computes a gradient has enough room.
constexpr size_t kMostParts = 6;
// The parts of a join that is computed where it is read, beside other operands.
constexpr size_t kMostUncomputed = 2;

// A part of a result and where it begins along a dimension.
struct Part {
  Value value;
  int64_t start = 0;
};

// Returns a view of a larger space, in which the part begins at `start` of a dimension: elsewhere it reads as 0.
Builder::Seen placed(Lowering& l, const Part& part, int dimension) {
  Builder::Seen seen = l.seen(part.value);
  const auto d = static_cast<size_t>(dimension);
  seen.view.offset -= part.start * seen.view.strides[d];
  seen.view.begin[d] = part.start;
  seen.view.end[d] = part.start + part.value.shape[dimension];
  return seen;
}

DType dtype_of(Lowering& l, const std::vector<Builder::Seen>& operands) {
  DType dtype = DType::i32;
  for (const Builder::Seen& seen : operands) {
    const DType of = l.builder().program().at(seen.buffer).dtype;
    if (of != DType::i32 && (dtype == DType::i32 || of != DType::f32)) dtype = of;
  }
  return dtype;
}

// Returns whether a value is the elements of one buffer, or their negatives: 0 where it is outside.
bool is_element(const Value& value) {
  return value.operands.size() == 1 && is_floating(value.type) &&
         (value.is_plain() || value.formula == -Formula::input(0));
}

// Returns the join as a value that is not computed yet: halves of a head that change places.
std::optional<Value> uncomputed(Lowering& l, const std::vector<Value>& values, int dimension) {
  if (values.size() > kMostUncomputed || !std::ranges::all_of(values, is_element))
    return std::nullopt;
  Value result{.operands = {}, .shape = values[0].shape, .type = values[0].type};
  int64_t start = 0;
  for (const Value& value : values) {
    const auto number = static_cast<int>(result.operands.size());
    if (value.shape[dimension] == 0) return std::nullopt;
    const Value elements{.operands = value.operands, .shape = value.shape, .type = value.type};
    result.operands.push_back(placed(l, {elements, start}, dimension));
    const Formula part = value.formula.renumbered(std::array{number});
    result.formula = number == 0 ? part : result.formula + part;
    start += value.shape[dimension];
  }
  result.shape.dims[static_cast<size_t>(dimension)] = start;
  return result;
}

void lower_cat(Lowering& l, const Node& node) {
  const std::vector<Value> values = l.operands(node, "tensors");
  const int dimension = l.dimension(node, "dim", values[0].shape.rank);
  if (std::optional<Value> value = uncomputed(l, values, dimension))
    return l.set(node, *std::move(value));
  l.set(node, joined(l, values, dimension));
}

void lower_stack(Lowering& l, const Node& node) {
  std::vector<Value> values = l.operands(node, "tensors");
  const int d = l.dimension(node, "dim", values[0].shape.rank + 1);
  for (Value& value : values) value = unsqueeze(std::move(value), d);
  l.set(node, joined(l, std::move(values), d));
}

// Elements of `value` around a tensor; a negative number of them takes elements away.
void lower_pad(Lowering& l, const Node& node) {
  if (node.target == "aten.pad.default" && node.text("mode") != "constant") {
    if (pad_with_own(l, node, node.text("mode"))) return;
    Lowering::fail(node, "has the mode {}: expected constant, reflect, replicate or circular",
                   node.text("mode"));
  }
  Value x = l.operand(node, "self");
  const std::vector<int64_t> pad = node.wholes("pad");
  float value = 0;
  if (node.has("value"))
    value = std::visit([](auto v) { return static_cast<float>(v); }, *node.scalar("value"));
  const Shape shape = l.shape_of(node.outputs[0]);
  Builder::Seen seen = l.seen(x);
  for (size_t i = 0; 2 * i < pad.size(); ++i) {
    const auto d = static_cast<size_t>(shape.rank - 1) - i;
    const int64_t before = pad[2 * i];
    seen.view.offset -= before * seen.view.strides[d];
    seen.view.begin[d] = std::max<int64_t>(0, before);
    seen.view.end[d] = before + x.shape[static_cast<int>(d)];
  }
  const Formula element = Formula::input(0);
  const Formula formula = value == 0 ? element : select(Formula::inside(0), element, value);
  const BufferId id = l.builder().map(formula, space_of(shape), {seen}, dtype_of(l, {seen}));
  l.set(node, whole(id, shape, x.type));
}

// The tensor again and again along its dimensions.
void lower_repeat(Lowering& l, const Node& node) {
  Value x = l.operand(node, "self");
  const Shape shape = l.shape_of(node.outputs[0]);
  while (x.shape.rank < shape.rank) x = unsqueeze(std::move(x), 0);
  // A dimension of n elements r times is (r, n).
  Shape apart;
  for (int d = 0; d < shape.rank; ++d) {
    const int64_t times = shape[d] / std::max<int64_t>(1, x.shape[d]);
    if (times > 1 && x.shape[d] > 1) apart.append(times);
    apart.append(times > 1 && x.shape[d] == 1 ? times : x.shape[d]);
  }
  for (int d = 0, at = 0; d < shape.rank; ++d, ++at) {
    if (apart[at] == x.shape[at] || x.shape[at] == 1) continue;
    x = unsqueeze(std::move(x), at++);
  }
  l.set(node, l.reshaped(expand(std::move(x), apart), shape));
}

constexpr LoweredOp kJoins[] = {
    {"aten.cat.default", lower_cat},
    {"aten.constant_pad_nd.default", lower_pad},
    {"aten.pad.default", lower_pad},
    {"aten.repeat.default", lower_repeat},
    {"aten.hstack.default",
     [](Lowering& l, const Node& node) {
       std::vector<Value> values = l.operands(node, "tensors");
       for (Value& value : values)
         if (value.shape.rank == 0) value = unsqueeze(std::move(value), 0);
       l.set(node, joined(l, values, values[0].shape.rank == 1 ? 0 : 1));
     }},
    {"aten.stack.default", lower_stack},
    {"aten.tile.default", lower_repeat},
};

}  // namespace

// The parts follow one another along a dimension. Each is 0 where another is, so the sum is that of the one.
Value joined(Lowering& l, std::vector<Value> values, int dimension) {
  while (values.size() > kMostParts) {
    std::vector<Value> fewer;
    for (size_t i = 0; i < values.size(); i += kMostParts) {
      const size_t end = std::min(i + kMostParts, values.size());
      fewer.push_back(end == i + 1 ? values[i]
                                   : joined(l,
                                            {values.begin() + static_cast<std::ptrdiff_t>(i),
                                             values.begin() + static_cast<std::ptrdiff_t>(end)},
                                            dimension));
    }
    values = std::move(fewer);
  }
  Shape shape = values[0].shape;
  std::vector<Builder::Seen> operands;
  Formula sum;
  int64_t start = 0;
  for (const Value& value : values) {
    operands.push_back(placed(l, {value, start}, dimension));
    const Formula part = Formula::input(static_cast<int>(operands.size()) - 1);
    sum = operands.size() == 1 ? part : sum + part;
    start += value.shape[dimension];
  }
  shape.dims[static_cast<size_t>(dimension)] = start;
  const BufferId id = l.builder().map(sum, shape, operands, dtype_of(l, operands));
  return whole(id, shape, values[0].type);
}

std::span<const LoweredOp> join_operators() {
  return kJoins;
}

}  // namespace dstrain::exported
