#include "runtime/ir/ops/general/slopes.h"

#include <algorithm>
#include <utility>

#include "runtime/ir/views/adjoint.h"

namespace dstrain::ops {
namespace {

// Takes those indices of a space away at which a view reads no element, so that the view is not bounded any more.
void restrict(Shape& space, View& bounded, std::vector<View>& others) {
  const auto shift = [](View& view, size_t d, int64_t begin) {
    view.offset += begin * view.strides[d];
    view.begin[d] = std::max<int64_t>(0, view.begin[d] - begin);
    if (view.end[d] != View::kAll) view.end[d] -= begin;
  };
  for (int i = 0; i < space.rank; ++i) {
    if (!bounded.bounds(i, space[i])) continue;
    const auto d = static_cast<size_t>(i);
    const int64_t begin = std::max<int64_t>(bounded.begin[d], 0);
    space.dims[d] = std::min(bounded.end[d], space[i]) - begin;
    shift(bounded, d, begin);
    for (View& view : others) shift(view, d, begin);
  }
}

}  // namespace

Formula Term::operand(BufferId id, const View& view) {
  reads.push_back(id);
  views.push_back(view);
  return Formula::input(static_cast<int>(reads.size()) - 1);
}

std::array<int, Formula::kMostInputs> Term::with_all(const std::vector<BufferId>& ids,
                                                     const std::vector<View>& of) {
  std::array<int, Formula::kMostInputs> numbers{};
  for (size_t i = 0; i < ids.size(); ++i) {
    numbers[i] = static_cast<int>(reads.size());
    operand(ids[i], of[i]);
  }
  return numbers;
}

Formula Term::formula_of(const Formula& other, const std::vector<BufferId>& ids,
                         const std::vector<View>& of) {
  std::array<int, Formula::kMostInputs> numbers{};
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!other.reads(static_cast<int>(i))) continue;
    numbers[i] = static_cast<int>(reads.size());
    operand(ids[i], of[i]);
  }
  return other.renumbered(numbers);
}

void expect_walk(const Operands& o, const Shape& space, const std::vector<View>& views,
                 size_t operands) {
  o.expect(space.elements() > 0, "an index space has at least one index");
  o.expect(views.size() == operands, "each operand has a view");
  for (size_t i = 0; i < operands; ++i) {
    if (o.in(i).dtype != DType::i32) o.values(o.in(i));
    expect_inside(o, i, views[i], space);
  }
}

void expect_inside(const Operands& o, size_t i, const View& view, const Shape& space) {
  const auto range = elements_read(view, space);
  o.expect(!range || (range->first >= 0 && range->last < o.in(i).shape.elements()),
           "a view reads elements that an operand has not");
}

void emit_through(Gradients& g, BufferId x, View view, Term term) {
  const Program& p = g.program();
  restrict(term.space, view, term.views);
  const auto adjoint = Adjoint::of(view, term.space, p.at(x).shape.elements());
  check(adjoint.has_value(), "{} is read through a view that has no way back for its gradient",
        p.at(x).name);
  for (View& of : term.views) of = adjoint->through(of);
  if (adjoint->bounded()) term.formula = select(Formula::inside(0), term.formula, 0);
  const bool summed = adjoint->kept() < adjoint->space().rank;
  const bool is_parameter = p.at(x).parameter >= 0;
  const BufferId before = is_parameter || summed ? kNone : g.of(x);
  const bool adds = before != kNone && term.reads.size() < Formula::kMostInputs;
  if (adds) term.formula = term.operand(before, dense_view(adjoint->space())) + term.formula;
  OpAttrs attrs = MapAttrs{term.formula, adjoint->space(), term.views};
  if (summed)
    attrs = ReduceAttrs{.formula = term.formula,
                        .space = adjoint->space(),
                        .kept = adjoint->kept(),
                        .views = term.views};
  const OpKind op = summed ? OpKind::reduce : OpKind::map;
  if (is_parameter) return g.emit_weight(op, std::move(attrs), std::move(term.reads), {x});
  const BufferId d_x = g.like(x);
  g.emit(op, std::move(attrs), std::move(term.reads), {d_x});
  adds ? g.replace(x, d_x) : g.contribute(x, d_x);
}

void emit_transpose(const Instruction& op, OpKind transpose, Gradients& g) {
  const BufferId x = op.reads[0];
  if (!g.needs(x)) return;
  std::vector<BufferId> reads = op.reads;
  reads[0] = g.of(op.writes[0]);
  if (g.program().at(x).parameter >= 0)
    return g.emit_weight(transpose, op.attrs, std::move(reads), {x});
  const BufferId d_x = g.like(x);
  g.emit(transpose, op.attrs, std::move(reads), {d_x});
  g.contribute(x, d_x);
}

}  // namespace dstrain::ops
