// Running sums and products along a dimension.
#include <span>
#include <utility>

#include "models/exported/lower/formulas.h"
#include "models/exported/lower/operators.h"
#include "models/exported/lower/ops/lines/lines.h"

namespace dstrain::exported {
namespace {

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

// Returns for each element of a line a function of it and all before it: f(f(x0, x1), x2) and so on, of an f in which it makes no
// difference how they are grouped. In each of as many maps as the line's size has bits, an element takes up those before that
// the one 1, 2, 4, ... places before has taken up. What each has of the result's gradient follows, also where a product has
// a factor of 0.
BufferId running(Lowering& l, const Value& x, int dimension,
                 Formula (*f)(const Formula&, const Formula&)) {
  const Lines lines = lines_along(x.shape, dimension);
  const Shape space{lines.count(x.shape.elements()) / lines.apart, lines.size, lines.apart};
  const Formula own = Formula::input(0), before = Formula::input(1);
  const Formula both = select(Formula::inside(1), f(before, own), own);
  BufferId id = l.exact(x);
  for (int64_t places = 1; places < lines.size; places *= 2) {
    View earlier = dense_view(space);
    earlier.offset -= places * lines.apart;
    earlier.begin[1] = places;
    id = l.builder().map(both, space, {{id, dense_view(space)}, {id, earlier}}, DType::f32);
  }
  return id;
}

// log(exp(a) + exp(b)), which no large exponent makes infinite. Nothing but infinities has no distance from itself.
Formula log_of_sum(const Formula& a, const Formula& b) {
  const Formula distance = select(equal(a, b), 0, absolute(a - b));
  return larger(a, b) + logarithm(1 + exponential(-distance));
}
Formula product_of_two(const Formula& a, const Formula& b) {
  return a * b;
}

template <Formula (*kFormula)(const Formula&, const Formula&)>
void lower_running(Lowering& l, const Node& node) {
  const Value x = l.operand(node, "self");
  const ScalarType type = l.result(node).type;
  if (x.operands.empty() || x.shape.rank == 0)
    Lowering::fail(node, "is of a number, which is not supported");
  const BufferId id = running(l, x, l.dimension(node, "dim", x.shape.rank), kFormula);
  const Value result = whole(id, x.shape, type);
  l.set(node, is_integer(type) ? l.integers(result) : result);
}

constexpr LoweredOp kScans[] = {
    {"aten.cumprod.default", lower_running<product_of_two>},
    {"aten.cumsum.default", lower_cumsum},
    {"aten.logcumsumexp.default", lower_running<log_of_sum>},
};

}  // namespace

std::span<const LoweredOp> scan_operators() {
  return kScans;
}

}  // namespace dstrain::exported
