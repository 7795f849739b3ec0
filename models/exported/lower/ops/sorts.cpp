// Operators along the lines of a dimension: running sums, and the order of elements.
#include <utility>

#include "models/exported/lower/operators.h"

namespace dstrain::exported {
namespace {

// Returns the lines of a tensor along a dimension.
Lines lines_along(const Shape& shape, int dimension) {
  Lines lines{.size = shape[dimension], .apart = 1};
  for (int d = dimension + 1; d < shape.rank; ++d) lines.apart *= shape[d];
  return lines;
}

// Returns a buffer that has the value's elements in order: of integers, where the type is one of integers.
BufferId elements_as(Lowering& l, Value value, ScalarType type) {
  value.type = type;
  const bool integers = is_integer(type);
  const BufferId id = l.dense(value);
  if ((l.builder().program().at(id).dtype == DType::i32) == integers) return id;
  const Shape space = space_of(value.shape);
  return l.builder().map(Formula::input(0), space, {{id, dense_view(space)}},
                         integers ? DType::i32 : DType::f32);
}

void lower_cumsum(Lowering& l, const Node& node) {
  const Value x = l.operand(node, "self");
  const ScalarType type = l.result(node).type;
  if (type == ScalarType::boolean || (is_floating(x.type) && !is_floating(type)))
    Lowering::fail(node, "adds {} as {}, which is not supported", name_of(x.type), name_of(type));
  if (x.shape.rank == 0) return l.set(node, x);
  const ScanAttrs attrs{.lines = lines_along(x.shape, l.dimension(node, "dim", x.shape.rank))};
  std::optional<DType> result;
  if (!is_integer(type)) result = DType::f32;
  l.set(node, whole(l.builder().scan(elements_as(l, x, type), attrs, result), x.shape, type));
}

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

constexpr LoweredOp kSorts[] = {
    {"aten.argsort.default", lower_argsort}, {"aten.argsort.stable", lower_argsort},
    {"aten.cumsum.default", lower_cumsum},   {"aten.sort.default", lower_sort},
    {"aten.sort.stable", lower_sort},        {"aten.topk.default", lower_topk},
};

}  // namespace

std::span<const LoweredOp> sort_operators() {
  return kSorts;
}

}  // namespace dstrain::exported
