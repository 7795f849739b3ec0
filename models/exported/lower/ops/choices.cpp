// Operators that choose elements of a dimension, and those that ask whether truths hold.
#include "models/exported/lower/ops/choices.h"

#include <numeric>
#include <span>
#include <utility>

#include "models/exported/lower/formulas.h"
#include "models/exported/lower/operators.h"
#include "models/exported/lower/reductions.h"

namespace dstrain::exported {
namespace {

using Formulas = std::span<const Formula>;

// max(x, dim): the elements and their places.
template <Reduction kKind>
void lower_choice(Lowering& l, const Node& node) {
  const Value x = l.operand(node, "self");
  if (x.shape.rank == 0) {
    l.set(node, x, 0);
    return l.set(node, number(0, ScalarType::i64), 1);
  }
  const int d = l.dimension(node, "dim", x.shape.rank);
  const Choice choice = chosen(l, node, kKind, x, d);
  const auto shaped = [&](const Value& value) { return keeps(node) ? unsqueeze(value, d) : value; };
  l.set(node, shaped(choice.element), 0);
  l.set(node, shaped(choice.place), 1);
}

template <Reduction kKind>
void lower_place(Lowering& l, const Node& node) {
  Value x = l.operand(node, "self");
  const Shape result = l.shape_of(node.outputs[0]);
  int d = 0;
  if (node.has("dim"))
    d = l.dimension(node, "dim", x.shape.rank);
  else
    x = l.reshaped(x, {x.shape.elements()});
  if (x.shape.rank == 0) return l.set(node, number(0, ScalarType::i64));
  l.set(node, l.reshaped(chosen(l, node, kKind, x, d).place, result));
}

// Whether elements are not 0: of any, or of all.
template <Reduction kKind>
void lower_any(Lowering& l, const Node& node) {
  const Value x = l.operand(node, "self");
  const Value truths = l.pointwise(
      node, [](Formulas f) { return 1 - equal(f[0], 0); }, {x}, ScalarType::boolean);
  l.set(node,
        l.reduced(kKind, truths, dimensions_of(l, node, x), keeps(node), Lowering::Gradient::none));
}

constexpr LoweredOp kChoices[] = {
    {"aten.all.default", lower_any<Reduction::minimum>},
    {"aten.all.dim", lower_any<Reduction::minimum>},
    {"aten.all.dims", lower_any<Reduction::minimum>},
    {"aten.any.default", lower_any<Reduction::maximum>},
    {"aten.any.dim", lower_any<Reduction::maximum>},
    {"aten.any.dims", lower_any<Reduction::maximum>},
    {"aten.argmax.default", lower_place<Reduction::maximum>},
    {"aten.argmin.default", lower_place<Reduction::minimum>},
    {"aten.max.dim", lower_choice<Reduction::maximum>},
    {"aten.min.dim", lower_choice<Reduction::minimum>},
};

}  // namespace

Choice chosen(Lowering& l, const Node& node, Reduction kind, const Value& of, int dimension) {
  const Value x = l.computed(of);
  const int64_t size = x.shape[dimension];
  const Value best = l.reduced(kind, x, {dimension}, true, Lowering::Gradient::none);
  std::vector<int32_t> numbers(static_cast<size_t>(size));
  std::iota(numbers.begin(), numbers.end(), 0);
  Value number_of = l.list(node, "places", {size}, numbers);
  for (int d = dimension + 1; d < x.shape.rank; ++d)
    number_of = unsqueeze(number_of, number_of.shape.rank);
  const auto none = static_cast<float>(size);
  const Value places = l.pointwise(
      node, [none](Formulas f) { return select(equal(f[0], f[1]), f[2], none); },
      {x, best, number_of}, ScalarType::f32);
  const Value place =
      l.reduced(Reduction::minimum, places, {dimension}, true, Lowering::Gradient::none);
  const Value parts = l.pointwise(
      node, [](Formulas f) { return select(equal(f[1], f[2]), f[0], 0); }, {x, place, number_of},
      x.type);
  const Value sum = l.reduced(Reduction::sum, parts, {dimension}, false);
  const Value element = l.pointwise(
      node, [none](Formulas f) { return select(less(f[0], none), f[1], f[2]); },
      {squeeze(place, dimension), sum, squeeze(best, dimension)}, x.type);
  return {element, l.integers(squeeze(place, dimension))};
}

std::span<const LoweredOp> choice_operators() {
  return kChoices;
}

}  // namespace dstrain::exported
