// A loss that other ops compute: its sum over the elements of x, of which each gets the same gradient. It is divided by the
// number of targets or of samples of the global batch (Program::loss_weight) and multiplied by the loss scale here, and
// nowhere else.
#pragma once

#include "runtime/ir/ops/operands.h"

namespace dstrain::ops {

inline constexpr OpRule sum_loss{
    .of_model = true,
    .walks_space = true,
    .attrs = kAttrs<SumLossAttrs>,
    .makes_loss = true,
    .sums = {.count = 1},
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 1, 1, 2);
          const DType t = o.values(o.in(0));
          o.expect(o.out(0), 1, DType::f64);
          if (o.has_out(1)) o.expect(o.out(1), o.in(0).shape.elements(), t);
          o.no_alias();
        },
    .backward =
        [](const Instruction& op, Gradients& g) {
          check(op.writes.size() > 1 && op.writes[1] != kNone,
                "sum_loss was emitted without its gradient");
          g.contribute(op.reads[0], op.writes[1]);
        },
};

}  // namespace dstrain::ops
