// route: which experts each row of a mixture chooses, and how much each of them counts. Of equal scores that of the expert
// with the smaller number comes first. Where the scores are shares, experts are chosen by their logits, which have the same
// order and are not rounded as shares are.
#pragma once

#include "runtime/ir/ops/operands.h"

namespace dstrain::ops {

// Checks that `chosen` has i32 values of some slots of each row, and returns how many.
inline int64_t expect_slots(const Operands& o, const Buffer& chosen, int64_t rows) {
  const int64_t slots = columns(chosen);
  o.expect(chosen, rows * slots, DType::i32);
  o.expect(slots > 0, "a row chooses at least one expert");
  return slots;
}

inline constexpr OpRule route{
    .repeatable = true,
    .of_model = true,
    .attrs = kAttrs<RouteAttrs>,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(2, 2, 2, 2);
          const auto attrs = attrs_as<RouteAttrs>(op.attrs);
          const int64_t r = rows(o.in(0)), experts = columns(o.in(0));
          o.values(o.in(0));
          if (o.has_in(1)) o.expect(o.in(1), experts, DType::f32);
          const int64_t slots = expect_slots(o, o.out(1), r);
          o.expect(o.out(0), r * slots, DType::f32);
          const int64_t groups = attrs.groups, kept = attrs.kept_groups;
          o.expect(groups > 0 && groups <= 64 && experts % groups == 0,
                   "experts divide into at most 64 groups");
          o.expect(kept > 0 && kept <= groups && slots <= experts / groups * kept,
                   "a row chooses each expert once");
          o.expect(attrs.scores == RouterScores::sigmoid || (groups == 1 && !o.has_in(1)),
                   "groups and a bias belong to scores of each expert by itself");
          o.no_alias();
        },
    .backward =
        [](const Instruction& op, Gradients& g) {
          const BufferId logits = op.reads[0];
          if (!g.needs(logits)) return;
          const BufferId d = g.like(logits);
          g.emit(OpKind::route_grad, op.attrs, {g.of(op.writes[0]), logits, op.writes[1]}, {d});
          g.contribute(logits, d);
        },
    .axes = axes_are<"row expert!, expert -> row slot, row slot">,
};

inline constexpr OpRule route_grad{
    .attrs = kAttrs<RouteAttrs>,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(3, 3, 1, 1);
          const DType t = o.values(o.in(1));
          const int64_t r = rows(o.in(1)), slots = expect_slots(o, o.in(2), r);
          o.expect(o.in(0), r * slots, DType::f32);
          o.expect(o.out(0), o.in(1).shape.elements(), t);
          o.no_alias();
        },
    .axes = axes_are<"row slot, row expert!, row slot -> row expert">,
};

}  // namespace dstrain::ops
