// The rows of experts: each row of a micro-batch, once for each of its slots, in the order of experts, rows and slots.
// `places` say where: a permutation, so that rows are moved and sums are made with no regard to the experts, slot by slot.
// spread_rows and combine_rows are each other's gradients. A row's results depend on no other row, so rows of slots stay as they
// are; but places do, so that the rows of a micro-batch are needed whole.
#pragma once

#include "runtime/ir/ops/experts/route.h"

namespace dstrain::ops {

inline constexpr OpRule group_rows{
    .repeatable = true,
    .of_model = true,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 1, 2, 2);
          const int64_t r = rows(o.in(0)), slots = expect_slots(o, o.in(0), r);
          o.expect(o.out(0), r * slots, DType::i32);
          o.expect(o.out(1), o.out(1).shape.elements(), DType::i32);
          o.no_alias();
        },
    .axes = axes_are<"row! slot! -> row slot, expert">,
    .in_slots = [](Program&, Instruction&, const Slots&) {},
};

// Checks the operands of an op between rows x (R,C) and those of experts (R*S,C), at the places of operand 1.
inline void expect_spread(const Operands& o, const Buffer& x, const Buffer& of_experts) {
  const DType t = o.values(x);
  const int64_t r = rows(x), slots = columns(o.in(1));
  o.expect(o.in(1), r * slots, DType::i32);
  o.expect(x, x.shape.elements(), t);
  o.expect(of_experts, slots * x.shape.elements(), t);
  o.expect(columns(x) == columns(of_experts), "rows of experts have other columns");
  if (o.has_in(2)) o.expect(o.in(2), r * slots, DType::f32);
  o.no_alias();
}

inline constexpr OpRule spread_rows{
    .repeatable = true,
    .of_model = true,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(2, 3, 1, 1);
          expect_spread(o, o.in(0), o.out(0));
        },
    .backward =
        [](const Instruction& op, Gradients& g) {
          check(op.reads.size() == 2, "rows that a model spreads have no weights");
          const BufferId x = op.reads[0];
          if (!g.needs(x)) return;
          const BufferId d = g.like(x);
          g.emit(OpKind::combine_rows, {}, {g.of(op.writes[0]), op.reads[1]}, {d});
          g.contribute(x, d);
        },
    .axes = axes_are<"row! channel, row slot!, row slot -> routed channel">,
    .in_slots = [](Program&, Instruction&, const Slots&) {},
};

inline constexpr OpRule combine_rows{
    .repeatable = true,
    .of_model = true,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(2, 3, 1, 1);
          expect_spread(o, o.out(0), o.in(0));
        },
    .backward =
        [](const Instruction& op, Gradients& g) {
          check(op.reads.size() == 3, "rows that a model combines have weights");
          const BufferId x = op.reads[0], places = op.reads[1], weights = op.reads[2];
          const BufferId d_y = g.of(op.writes[0]);
          if (g.needs(weights)) {
            const BufferId d = g.like(weights);
            g.emit(OpKind::combine_weight_grad, {}, {d_y, x, places}, {d});
            g.contribute(weights, d);
          }
          if (g.needs(x)) {
            const BufferId d = g.like(x);
            g.emit(OpKind::spread_rows, {}, {d_y, places, weights}, {d});
            g.contribute(x, d);
          }
        },
    .axes = axes_are<"routed! channel, row slot!, row slot -> row channel">,
    .in_slots = [](Program&, Instruction&, const Slots&) {},
};

inline constexpr OpRule combine_weight_grad{
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(3, 3, 1, 1);
          const DType t = o.values(o.in(0));
          const int64_t r = rows(o.in(0)), slots = columns(o.in(2));
          o.expect(o.in(2), r * slots, DType::i32);
          o.expect(o.in(1), slots * o.in(0).shape.elements(), t);
          o.expect(columns(o.in(0)) == columns(o.in(1)), "rows of experts have other columns");
          o.expect(o.out(0), r * slots, DType::f32);
          o.no_alias();
        },
    .axes = axes_are<"row channel!, routed! channel, row slot -> row slot">,
};

}  // namespace dstrain::ops
