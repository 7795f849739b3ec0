// y[kept] = the sum, the largest or the smallest of formula(x0, x1, ...) over the other dimensions of an index space.
// Order of sums: docs/numerics.md. The gradient of a largest or smallest value goes in equal parts to all elements that
// have it, as PyTorch's amax and amin have it.
#pragma once

#include "runtime/ir/ops/general/slopes.h"

namespace dstrain::ops {

// Returns the view of a result that has the space's first `kept` dimensions.
inline View view_of_result(const Shape& space, int kept) {
  Shape own;
  for (int d = 0; d < kept; ++d) own.append(space[d]);
  return dense_view(own);
}

// Returns 1 where a is neither less nor more than b, else 0.
inline Formula equal(const Formula& a, const Formula& b) {
  return select(less(a, b), 0, select(less(b, a), 0, 1));
}

// Emits the number of elements that have the largest or smallest value, for each result.
inline BufferId emit_count(const Instruction& op, const ReduceAttrs& attrs, Gradients& g) {
  Term term{.space = attrs.space};
  const Formula y = term.operand(op.writes[0], view_of_result(attrs.space, attrs.kept));
  term.formula = equal(term.formula_of(attrs.formula, op.reads, attrs.views), y);
  const BufferId count = g.fresh(op.writes[0], DType::f32);
  g.emit(
      OpKind::reduce,
      ReduceAttrs{
          .formula = term.formula, .space = attrs.space, .kept = attrs.kept, .views = term.views},
      term.reads, {count});
  return count;
}

inline constexpr OpRule reduce{
    .repeatable = true,
    .of_model = true,
    .walks_space = true,
    .attrs = kAttrs<ReduceAttrs>,
    .sums = {.count = 1},
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, Formula::kMostInputs, 1, 1);
          const auto attrs = attrs_as<ReduceAttrs>(op.attrs);
          o.expect(0 <= attrs.kept && attrs.kept <= attrs.space.rank, "dimensions that are kept");
          o.expect(attrs.formula.inputs() <= static_cast<int>(op.reads.size()),
                   "a formula reads operands that there are not");
          Shape kept = attrs.space;
          kept.rank = attrs.kept;
          o.values(o.out(0));
          o.expect(o.out(0), kept.elements(), o.out(0).dtype);
          expect_walk(o, attrs.space, attrs.views, op.reads.size());
          o.no_alias();
        },
    .backward =
        [](const Instruction& op, Gradients& g) {
          const auto attrs = attrs_as<ReduceAttrs>(op.attrs);
          const View of_y = view_of_result(attrs.space, attrs.kept);
          const BufferId d_y = g.of(op.writes[0]);
          BufferId count = kNone;
          for (size_t i = 0; i < op.reads.size(); ++i) {
            if (!g.needs(op.reads[i])) continue;
            const auto slope = derivative(attrs.formula, static_cast<int>(i));
            if (!slope) continue;
            Term term{.space = attrs.space};
            Formula d = term.operand(d_y, of_y);
            if (attrs.kind != Reduction::sum) {
              if (count == kNone) count = emit_count(op, attrs, g);
              const Formula share = d / term.operand(count, of_y);
              const Formula y = term.operand(op.writes[0], of_y);
              const auto all = term.with_all(op.reads, attrs.views);
              term.formula = select(equal(attrs.formula.renumbered(all), y),
                                    share * slope->renumbered(all), 0);
            } else {
              term.formula = d * term.formula_of(*slope, op.reads, attrs.views);
            }
            emit_through(g, op.reads[i], attrs.views[i], std::move(term));
          }
        },
};

}  // namespace dstrain::ops
