// Operators that put elements where integers name them.
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

#include "models/exported/lower/formulas.h"
#include "models/exported/lower/operators.h"
#include "models/exported/lower/ops/lookups.h"

namespace dstrain::exported {
namespace {

using Formulas = std::span<const Formula>;

// Elements and where an operator puts them into a tensor of some shape.
struct Target {
  Shape shape{};
  std::vector<Named> names;
  std::vector<int> places;
};

Value sums_of(Lowering& l, const Value& values, const Target& target) {
  return put(l, values, target.shape, target.names, target.places);
}

// Returns how many elements are put into each.
Value put_counts(Lowering& l, const Shape& space, const Target& target) {
  return sums_of(l, expand(number(1), space), target);
}

// Returns a tensor with other elements where some are put. Of several at one place PyTorch takes any: this is their mean.
Value replaced(Lowering& l, const Node& node, const Value& self, const Value& values,
               const Target& target) {
  return l.pointwise(
      node, [](Formulas f) { return select(less(0, f[1]), f[2] / maximum(f[1], 1), f[0]); },
      {self, put_counts(l, values.shape, target), sums_of(l, values, target)}, self.type);
}

Value added(Lowering& l, const Node& node, const Value& self, const Value& values,
            const Target& target) {
  return l.pointwise(
      node, [](Formulas f) { return f[0] + f[1]; }, {self, sums_of(l, values, target)}, self.type);
}

// Sets a node to a result, in integers where it has them.
void set_result(Lowering& l, const Node& node, Value value) {
  l.set(node, is_integer(l.result(node).type) ? l.integers(value) : std::move(value));
}

// self[:, index[i]] += alpha * source[:, i], for dimension 1.
void lower_index_add(Lowering& l, const Node& node) {
  const Value self = l.operand(node, "self");
  Value source = l.operand(node, "source");
  const int d = l.dimension(node, "dim", self.shape.rank);
  Value index = l.operand(node, "index");
  if (index.shape.rank == 0) index = unsqueeze(index, 0);
  if (source.shape.rank != self.shape.rank)
    Lowering::fail(node, "adds {} to {}: expected as many dimensions", to_string(source.shape),
                   to_string(self.shape));
  for (int i = d + 1; i < source.shape.rank; ++i) index = unsqueeze(index, index.shape.rank);
  if (const float alpha = Lowering::real(node, "alpha"); alpha != 1)
    source.formula = source.formula * alpha;
  const Target target{
      self.shape, {{expand(std::move(index), source.shape), d}}, places_but(self.shape.rank, d)};
  set_result(l, node, added(l, node, self, source, target));
}

// The first elements of `src` in each dimension, as many as there are of `index`, go to self[index[i][j]][j], for dimension 0.
struct Scattered {
  Value self, values;
  Target target{};
};

Scattered scattered(Lowering& l, const Node& node) {
  Scattered s{.self = l.operand(node, "self"), .values = {}};
  const int d = l.dimension(node, "dim", s.self.shape.rank);
  const Value index = l.operand(node, "index");
  if (index.shape.rank != s.self.shape.rank || index.shape.rank == 0)
    Lowering::fail(node, "has indices of {} for {}: expected as many dimensions",
                   to_string(index.shape), to_string(s.self.shape));
  if (node.find("value")) {
    s.values = expand(l.operand(node, "value"), index.shape);
  } else {
    s.values = l.operand(node, "src");
    for (int i = 0; i < index.shape.rank; ++i)
      if (index.shape[i] != s.values.shape[i])
        s.values = slice(std::move(s.values), i, 0, index.shape[i]);
  }
  s.target = {s.self.shape, {{index, d}}, places_but(s.self.shape.rank, d)};
  return s;
}

void lower_scatter(Lowering& l, const Node& node) {
  const Scattered s = scattered(l, node);
  set_result(l, node, replaced(l, node, s.self, s.values, s.target));
}

void lower_scatter_add(Lowering& l, const Node& node) {
  const Scattered s = scattered(l, node);
  set_result(l, node, added(l, node, s.self, s.values, s.target));
}

// Returns for each element of a tensor the largest or smallest that is put there, and of it where `with_self`. Each of a
// dimension looks at all that are put along it.
Value extremes(Lowering& l, const Node& node, const Scattered& s, bool largest, bool with_self) {
  const int d = s.target.names[0].dimension, rank = s.self.shape.rank;
  const int64_t size = s.self.shape[d];
  Shape space = s.values.shape;  // and behind it the dimension's elements
  space.append(size);
  std::vector<int32_t> numbers(static_cast<size_t>(size));
  std::iota(numbers.begin(), numbers.end(), 0);
  const float none = largest ? -HUGE_VALF : HUGE_VALF;
  const Value candidates = l.pointwise(
      node, [none](Formulas f) { return select(equal(f[0], f[1]), f[2], none); },
      {expand(unsqueeze(s.target.names[0].index, rank), space),
       l.list(node, "places", {size}, numbers), expand(unsqueeze(s.values, rank), space)},
      s.self.type);
  Value best = l.reduced(largest ? Reduction::maximum : Reduction::minimum, candidates, {d}, false);
  // The dimension is the last one now.
  std::vector<int> order;
  for (int i = 0; i < rank; ++i) order.push_back(i == d ? rank - 1 : i < d ? i : i - 1);
  best = permute(std::move(best), order);
  return l.pointwise(
      node,
      [largest, with_self, none](Formulas f) {
        if (!with_self) return select(equal(f[1], none), f[0], f[1]);
        return largest ? larger(f[0], f[1]) : smaller(f[0], f[1]);
      },
      {s.self, best}, s.self.type);
}

void lower_scatter_reduce(Lowering& l, const Node& node) {
  const Scattered s = scattered(l, node);
  const std::string_view kind = node.text("reduce");
  const bool with_self = node.flag("include_self");
  if (kind == "amax" || kind == "amin") {
    if (s.values.shape != s.self.shape)
      for (int d = 0; d < s.self.shape.rank; ++d)
        if (d != s.target.names[0].dimension && s.values.shape[d] != s.self.shape[d])
          Lowering::fail(node, "has indices of {} for {}: expected the same in other dimensions",
                         to_string(s.values.shape), to_string(s.self.shape));
    return set_result(l, node, extremes(l, node, s, kind == "amax", with_self));
  }
  if (kind != "sum" && kind != "mean")
    Lowering::fail(node, "reduces by \"{}\": expected sum, mean, amax or amin", kind);
  const bool mean = kind == "mean";
  if (!mean && with_self) return set_result(l, node, added(l, node, s.self, s.values, s.target));
  set_result(l, node,
             l.pointwise(
                 node,
                 [mean, with_self](Formulas f) {
                   if (with_self) return (f[0] + f[2]) / (1 + f[1]);
                   const Formula sum = mean ? f[2] / maximum(f[1], 1) : f[2];
                   return select(less(0, f[1]), sum, f[0]);
                 },
                 {s.self, put_counts(l, s.values.shape, s.target), sums_of(l, s.values, s.target)},
                 s.self.type));
}

// self[i, :, j] = values, or += values.
void lower_index_put(Lowering& l, const Node& node) {
  const Value self = l.operand(node, "self");
  const Indexed indexed = indexed_space(l, node, self.shape);
  const Value values = expand(l.operand(node, "values"), indexed.space);
  if (indexed.names.empty())
    return l.set(node, node.flag("accumulate") ? l.pointwise(
                                                     node, [](Formulas f) { return f[0] + f[1]; },
                                                     {self, values}, self.type)
                                               : values);
  const Target target{self.shape, indexed.names, indexed.places};
  set_result(l, node,
             node.flag("accumulate") ? added(l, node, self, values, target)
                                     : replaced(l, node, self, values, target));
}

// 1 where the class is the element, else 0, of as many classes as the graph says.
void lower_one_hot(Lowering& l, const Node& node) {
  const Value x = l.operand(node, "self");
  const Shape shape = l.shape_of(node.outputs[0]);
  std::vector<int32_t> classes(static_cast<size_t>(shape[-1]));
  std::iota(classes.begin(), classes.end(), 0);
  l.set(node, l.pointwise(
                  node, [](Formulas f) { return equal(f[0], f[1]); },
                  {unsqueeze(x, x.shape.rank), l.list(node, "classes", {shape[-1]}, classes)},
                  ScalarType::i64));
}

// How many elements there are in each of `bins` equal parts between two numbers. The last one has the upper limit.
void lower_histogram(Lowering& l, const Node& node) {
  const Value x = l.operand(node, "self");
  const float low = Lowering::real(node, "min"), high = Lowering::real(node, "max");
  const int64_t bins = node.whole("bins");
  if (low >= high)
    Lowering::fail(node, "counts between {} and {}: expected a range that the graph states", low,
                   high);
  const auto count = static_cast<float>(bins);
  // What is outside goes behind the last one, where nothing is counted.
  const Value bin = l.pointwise(
      node,
      [=](Formulas f) {
        const Formula place = minimum((f[0] - low) * (count / (high - low)), count - 1);
        return select(maximum(less(f[0], low), less(high, f[0])), count, place);
      },
      {l.reshaped(x, {x.shape.elements()})}, ScalarType::i64);
  const Target target{{bins}, {{l.integers(bin), 0}}, {-1}};
  set_result(l, node, put_counts(l, bin.shape, target));
}

constexpr LoweredOp kScatters[] = {
    {"aten.histc.default", lower_histogram},
    {"aten.index_add.default", lower_index_add},
    {"aten.index_put.default", lower_index_put},
    {"aten.one_hot.default", lower_one_hot},
    {"aten.scatter.src", lower_scatter},
    {"aten.scatter.value", lower_scatter},
    {"aten.scatter_add.default", lower_scatter_add},
    {"aten.scatter_reduce.two", lower_scatter_reduce},
};

}  // namespace

std::span<const LoweredOp> scatter_operators() {
  return kScatters;
}

}  // namespace dstrain::exported
