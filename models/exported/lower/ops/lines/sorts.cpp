// The order of elements along a dimension, and the elements that have a place in it.
#include <utility>

#include "models/exported/lower/formulas.h"
#include "models/exported/lower/operators.h"
#include "models/exported/lower/ops/lines/lines.h"

namespace dstrain::exported {
namespace {

constexpr int64_t kMostNumbered = 1 << 24;  // elements whose numbers formulas tell apart

// Sets the values of a dimension's first elements, or their indices, to results of the node: of each -1 if it has none.
struct SortResults {
  int values = -1, indices = -1;
};
void sort_along(Lowering& l, const Node& node, SortAttrs attrs, SortResults results) {
  const Value x = l.operand(node, "self");
  const Shape space = space_of(x.shape);
  const int dimension = l.dimension(node, "dim", x.shape.rank);
  attrs.lines = lines_along(space, dimension);
  if (attrs.kept == 0) attrs.kept = attrs.lines.size;
  if (attrs.kept < 0 || attrs.kept > attrs.lines.size)
    Lowering::fail(node, "takes {} of {} elements", attrs.kept, attrs.lines.size);
  Shape shape = x.shape;
  if (shape.rank > 0) shape.dims[static_cast<size_t>(dimension)] = attrs.kept;
  const BufferId elements = elements_as(l, x, x.type), order = l.builder().sort(elements, attrs);
  const auto is_used = [&](int output) {
    return output >= 0 && l.is_used(node.outputs.at(static_cast<size_t>(output)));
  };
  if (is_used(results.values))
    l.set(node, whole(l.builder().sorted(elements, order, attrs), shape, x.type),
          static_cast<size_t>(results.values));
  if (is_used(results.indices))
    l.set(node, whole(order, shape, ScalarType::i64), static_cast<size_t>(results.indices));
}

void lower_sort(Lowering& l, const Node& node) {
  sort_along(l, node, {.kept = 0, .descending = node.flag("descending")},
             {.values = 0, .indices = 1});
}

void lower_argsort(Lowering& l, const Node& node) {
  sort_along(l, node, {.kept = 0, .descending = node.flag("descending")}, {.indices = 0});
}

void lower_topk(Lowering& l, const Node& node) {
  const int64_t kept = node.whole("k");
  if (kept < 1) Lowering::fail(node, "takes {} elements", kept);
  sort_along(l, node, {.kept = kept, .descending = node.flag("largest")},
             {.values = 0, .indices = 1});
}

// One index for each line, i32 (planes, 1, apart): where a buffer has it.
struct LineIndex {
  BufferId buffer = kNone;
  View view{};
};

// Returns the place in the order of all lines that a sort with `attrs` has kept.
LineIndex place_in(BufferId order, const SortAttrs& attrs, int64_t place) {
  const int64_t apart = attrs.lines.apart;
  return {order, {.offset = place * apart, .strides = {attrs.kept * apart, 0, 1}}};
}

// Returns the element of each line that an index names, through which gradients go back: (planes, 1, apart).
BufferId element_of(Lowering& l, BufferId x, const Lines& lines, const LineIndex& index) {
  const int64_t planes = lines.count(l.builder().program().at(x).shape.elements()) / lines.apart;
  return l.builder().take(
      x,
      {.space = {planes, 1, lines.apart},
       .table = {.strides = {lines.size * lines.apart, 0, 1}},
       .indices = {{.view = index.view, .stride = lines.apart, .size = lines.size}}},
      {index.buffer});
}

// Sets a node to the element of each line that an index names, and to the index, where it gives one.
void set_element(Lowering& l, const Node& node, const Value& x, int dimension, BufferId elements,
                 const LineIndex& index) {
  Shape shape = x.shape;
  if (shape.rank > 0) shape.dims[static_cast<size_t>(dimension)] = 1;
  const bool keep = node.find("keepdim") && node.flag("keepdim");
  const auto shaped = [&](Value value) {
    return keep || shape.rank == 0 ? value : squeeze(std::move(value), dimension);
  };
  const Lines lines = lines_along(space_of(x.shape), dimension);
  if (l.is_used(node.outputs[0]))
    l.set(node, shaped(whole(element_of(l, elements, lines, index), shape, x.type)));
  if (node.outputs.size() < 2 || !l.is_used(node.outputs[1])) return;
  Value place = whole(index.buffer, {x.shape.elements() / lines.size / lines.apart, 1, lines.apart},
                      ScalarType::i64);
  place.operands[0].view = index.view;
  l.set(node, shaped(l.reshaped(place, shape)), 1);
}

void lower_kth_value(Lowering& l, const Node& node) {
  const Value x = l.operand(node, "self");
  const int dimension = l.dimension(node, "dim", x.shape.rank);
  const Lines lines = lines_along(space_of(x.shape), dimension);
  const int64_t k = node.whole("k");
  if (k < 1 || k > lines.size) Lowering::fail(node, "takes element {} of {}", k, lines.size);
  const SortAttrs attrs{.lines = lines, .kept = k};
  const BufferId elements = elements_as(l, x, x.type);
  set_element(l, node, x, dimension, elements,
              place_in(l.builder().sort(elements, attrs), attrs, k - 1));
}

// The element in the middle, of two the smaller one. NaN where a line has one: the first of them, which is the first element of
// the order that begins with the largest.
void lower_median(Lowering& l, const Node& node) {
  Value x = l.operand(node, "self");
  if (!node.find("dim")) x = l.reshaped(x, {x.shape.elements()});
  const int dimension = node.find("dim") ? l.dimension(node, "dim", x.shape.rank) : 0;
  const Lines lines = lines_along(space_of(x.shape), dimension);
  if (lines.size > kMostNumbered)
    Lowering::fail(node, "has lines of {} elements: expected at most {}", lines.size,
                   kMostNumbered);
  const SortAttrs attrs{.lines = lines, .kept = lines.size / 2 + 1, .descending = true};
  const BufferId elements = elements_as(l, x, x.type), order = l.builder().sort(elements, attrs);
  const LineIndex largest = place_in(order, attrs, 0),
                  middle = place_in(order, attrs, lines.size / 2);
  if (is_integer(x.type)) return set_element(l, node, x, dimension, elements, middle);
  const Shape space{x.shape.elements() / lines.size / lines.apart, 1, lines.apart};
  const BufferId index = l.builder().map(
      select(is_number(Formula::input(0)), Formula::input(1), Formula::input(2)), space,
      {{element_of(l, elements, lines, largest), dense_view(space)},
       {order, middle.view},
       {order, largest.view}},
      DType::i32);
  set_element(l, node, x, dimension, elements, {index, dense_view(space)});
}

constexpr LoweredOp kSorts[] = {
    {"aten.argsort.default", lower_argsort},    {"aten.argsort.stable", lower_argsort},
    {"aten.kthvalue.default", lower_kth_value}, {"aten.median.default", lower_median},
    {"aten.median.dim", lower_median},          {"aten.sort.default", lower_sort},
    {"aten.sort.stable", lower_sort},           {"aten.topk.default", lower_topk},
};

}  // namespace

std::span<const LoweredOp> sort_operators() {
  return kSorts;
}

}  // namespace dstrain::exported
