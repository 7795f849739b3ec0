// y = weight * round(x * rstd) with rstd = 1 / sqrt(mean(x^2) + eps), over each run of G columns, where G is the number
// of weights: the whole row, or one head of it. `round`: to x's dtype. With centred weights y = (1 + weight) * x * rstd,
// which is rounded once.
#pragma once

#include "runtime/ir/ops/operands.h"

namespace dstrain::ops {

// `rstd` has one value for each run of `group` columns of x.
inline void expect_groups(const Operands& o, const Buffer& x, int64_t group, const Buffer& rstd) {
  o.expect(group > 0 && columns(x) % group == 0,
           "columns must divide into runs of as many as there are weights");
  o.expect(rstd, x.shape.elements() / group, DType::f32);
}

// Returns the axes of an op of which operand `weight`, or if there is none the first result, has a value for each column of
// a run.
template <AxesText kWhole, AxesText kHeads>
OpAxes rms_norm_axes(const Program& p, const Instruction& op, BufferId weight) {
  const bool whole = p.at(weight).shape.elements() == columns(p.at(op.reads[0]));
  return whole ? axes_are<kWhole>(p, op) : axes_are<kHeads>(p, op);
}

inline constexpr OpRule rms_norm{
    .repeatable = true,
    .of_model = true,
    .attrs = kAttrs<RmsNormAttrs>,
    .module = "RMSNorm",
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(2, 2, 2, 2);
          const DType t = o.values(o.in(0));
          const int64_t g = o.in(1).shape.elements();
          o.expect(o.in(1), g, t);
          o.expect(o.out(0), o.in(0).shape.elements(), t);
          expect_groups(o, o.in(0), g, o.out(1));
          o.no_alias();
        },
    .backward =
        [](const Instruction& op, Gradients& g) {
          const BufferId x = op.reads[0], weight = op.reads[1], rstd = op.writes[1];
          const BufferId d_y = g.of(op.writes[0]);
          if (g.needs(x)) {  // also adds the gradient that x already has: the residual stream's
            const BufferId d_x = g.like(x);
            g.emit(OpKind::rms_norm_input_grad, op.attrs, {d_y, x, weight, rstd, g.of(x)}, {d_x});
            g.replace(x, d_x);
          }
          g.emit_weight(OpKind::rms_norm_weight_grad, op.attrs, {d_y, x, rstd}, {weight});
        },
    .axes =
        [](const Program& p, const Instruction& op) {
          return rms_norm_axes<"row channel!, channel -> row channel, row",
                               "row head, - -> row head, row head">(p, op, op.reads[1]);
        },
};

inline constexpr OpRule rms_norm_input_grad{
    .attrs = kAttrs<RmsNormAttrs>,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(5, 5, 1, 1);
          const DType t = o.values(o.in(0));
          const int64_t n = o.in(1).shape.elements(), g = o.in(2).shape.elements();
          o.expect(o.in(0), n, t);
          o.expect(o.in(1), n, t);
          o.expect(o.in(2), g, t);
          expect_groups(o, o.in(1), g, o.in(3));
          if (o.has_in(4)) o.expect(o.in(4), n, t);
          o.expect(o.out(0), n, t);
          o.no_alias();
        },
    .axes =
        [](const Program& p, const Instruction& op) {
          return rms_norm_axes<
              "row channel!, row channel, channel, row, row channel -> row channel",
              "row head, row head, -, row head, row head -> row head">(p, op, op.reads[2]);
        },
};

inline constexpr OpRule rms_norm_weight_grad{
    .attrs = kAttrs<RmsNormAttrs>,
    .gradient_terms = GradientTerms::rows,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(3, 3, 1, 1);
          const DType t = o.values(o.in(0));
          const int64_t g = o.out(0).shape.elements();
          o.expect(o.in(0), o.in(1).shape.elements(), t);
          o.expect(o.in(1), o.in(0).shape.elements(), t);
          expect_groups(o, o.in(1), g, o.in(2));
          o.expect(o.out(0), g, DType::f32);
        },
    .axes =
        [](const Program& p, const Instruction& op) {
          return rms_norm_axes<"row channel, row channel, row -> channel",
                               "row head, row head, row head -> -">(p, op, op.writes[0]);
        },
};

}  // namespace dstrain::ops
