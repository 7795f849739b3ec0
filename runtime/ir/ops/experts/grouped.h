// grouped_linear: y (G,N) = the product of the rows of each expert, x (G,K), and its weight, N of the rows of (E*N,K). How many
// rows an expert has is known when the step runs: memory has room for all of them. A row's result depends on nothing but the
// row and its expert's weight; the gradient of the weight of an expert without rows is 0. Where rows have come from several
// ranks (GroupedAttrs), each rank's are a group for each expert, and memory has room for the rows of all of them.
#pragma once

#include "runtime/ir/ops/operands.h"

namespace dstrain::ops {

// Checks the rows' operands x (G,K) and y (G,N), the weights (E*N,K) of the experts of `senders` ranks and the ends of rows
// of a product.
inline void expect_grouped(const Operands& o, const Buffer& x, const Buffer& weight,
                           const Buffer& ends, const Buffer& y, DType of_weight, int64_t senders) {
  const DType t = o.values(x);
  const int64_t g = rows(x), k = columns(x), n = columns(y), groups = ends.shape.elements();
  o.expect(ends, groups, DType::i32);
  o.expect(senders > 0 && groups % senders == 0, "ranks have groups of the same experts");
  const int64_t experts = groups / senders;
  o.expect(x, g * k, t);
  o.expect(y, g * n, t);
  o.expect(weight, experts * n * k, of_weight);
  o.expect(columns(weight) == k, "weights have other columns than rows");
  o.no_alias();
}

inline int64_t senders_of(const Instruction& op) {
  return attrs_as<GroupedAttrs>(op.attrs).senders;
}

// Returns the FLOPs of rows x (G,K) and y (G,N), each of which meets one expert's weight: of as many rows as there are where
// the choices are even.
inline double grouped_flops(const Instruction& op, const Buffer& x, const Buffer& y) {
  return 2 * static_cast<double>(x.shape.elements()) * static_cast<double>(columns(y)) /
         static_cast<double>(senders_of(op));
}

inline constexpr OpRule grouped_linear{
    .repeatable = true,
    .of_model = true,
    .attrs = kAttrs<GroupedAttrs>,
    .profiled =
        [](const Program& p, const Instruction& op, const WeightSizes&) {
          const double flops = grouped_flops(op, p.at(op.reads[0]), p.at(op.writes[0]));
          return CountedWork{.macs = flops / 2, .flops = flops};
        },
    .module = "Experts",
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(3, 3, 1, 1);
          expect_grouped(o, o.in(0), o.in(1), o.in(2), o.out(0), o.in(0).dtype, senders_of(op));
        },
    .flops =
        [](const Program& p, const Instruction& op) {
          return grouped_flops(op, p.at(op.reads[0]), p.at(op.writes[0]));
        },
    .backward =
        [](const Instruction& op, Gradients& g) {
          const BufferId x = op.reads[0], w = op.reads[1], ends = op.reads[2];
          const BufferId d_y = g.of(op.writes[0]);
          if (g.needs(x)) {
            const BufferId d_x = g.like(x);
            g.emit(OpKind::grouped_input_grad, op.attrs, {d_y, g.again(w), ends}, {d_x});
            g.contribute(x, d_x);
          }
          g.emit_weight(OpKind::grouped_weight_grad, op.attrs, {d_y, x, ends}, {w}, senders_of(op));
        },
    .axes = axes_are<"routed channel, expert feature channel, expert! -> routed feature">,
    .in_slots = [](Program&, Instruction& op, const Slots&) { op.op = OpKind::grouped_row_linear; },
};

inline constexpr OpRule grouped_row_linear{
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(3, 3, 1, 1);
          o.expect(o.in(0).dtype == DType::f32, "rows of slots are f32");
          expect_grouped(o, o.in(0), o.in(1), o.in(2), o.out(0), o.values(o.in(1)), 1);
        },
    .axes = axes_are<"routed channel, expert feature channel, expert! -> routed feature">,
};

inline constexpr OpRule grouped_input_grad{
    .attrs = kAttrs<GroupedAttrs>,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(3, 3, 1, 1);
          expect_grouped(o, o.out(0), o.in(1), o.in(2), o.in(0), o.in(0).dtype, senders_of(op));
        },
    .flops =
        [](const Program& p, const Instruction& op) {
          return grouped_flops(op, p.at(op.reads[0]), p.at(op.writes[0]));
        },
    .axes = axes_are<"routed feature, expert feature channel, expert! -> routed channel">,
};

inline constexpr OpRule grouped_weight_grad{
    .attrs = kAttrs<GroupedAttrs>,
    .gradient_terms = GradientTerms::rows,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(3, 3, 1, 1);
          expect_grouped(o, o.in(1), o.out(0), o.in(2), o.in(0), DType::f32, 1);
        },
    .flops =
        [](const Program& p, const Instruction& op) {
          return grouped_flops(op, p.at(op.reads[0]), p.at(op.reads[1]));
        },
    .axes = axes_are<"routed feature, routed channel, expert! -> expert feature channel">,
};

}  // namespace dstrain::ops
