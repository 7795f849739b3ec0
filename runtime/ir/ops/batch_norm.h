// batch_norm: y = act((x - mean) / sqrt(variance + eps) * weight + bias + residual) of rows x (R,C), with the mean and the
// variance (that of the rows, divided by R) of each column.
#pragma once

#include "runtime/ir/ops/operands.h"

namespace dstrain::ops {

inline constexpr OpRule batch_norm{
    .repeatable = true,
    .of_model = true,
    .walks_space = true,
    .attrs = kAttrs<BatchNormAttrs>,
    .profiled = flops_per_element<5>,
    .module = "BatchNorm",
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(3, 4, 3, 3);
          const DType t = o.values(o.in(0));
          const int64_t r = rows(o.in(0)), c = columns(o.in(0));
          o.expect(o.in(0), r * c, t);
          o.expect(o.in(1), c, t);
          o.expect(o.in(2), c, t);
          if (o.has_in(3)) o.expect(o.in(3), r * c, t);
          o.expect(o.out(0), r * c, t);
          o.expect(o.out(1), c, DType::f32);
          o.expect(o.out(2), c, DType::f32);
          o.no_alias();
        },
    .backward =
        [](const Instruction& op, Gradients& g) {
          const BufferId x = op.reads[0], weight = op.reads[1], bias = op.reads[2];
          const BufferId residual = op.reads.size() > 3 ? op.reads[3] : kNone;
          const BufferId y = op.writes[0], mean = op.writes[1], variance = op.writes[2];
          const bool relu = attrs_as<BatchNormAttrs>(op.attrs).relu;
          const bool masks = relu && residual != kNone && g.needs(residual);
          const BufferId d_x = g.like(x), d_weight = g.fresh(weight, DType::f32),
                         d_bias = g.fresh(bias, DType::f32);
          const BufferId d_y = g.of(y), d_residual = masks ? g.like(residual) : kNone;
          g.emit(OpKind::batch_norm_grad, op.attrs,
                 {d_y, x, weight, mean, variance, relu ? y : kNone},
                 {d_x, d_weight, d_bias, d_residual});
          if (g.needs(x)) g.contribute(x, d_x);
          if (g.needs(weight)) g.contribute(weight, d_weight);
          if (g.needs(bias)) g.contribute(bias, d_bias);
          if (residual != kNone && g.needs(residual))
            g.contribute(residual, masks ? d_residual : d_y);
        },
};

inline constexpr OpRule batch_norm_grad{
    .walks_space = true,
    .attrs = kAttrs<BatchNormAttrs>,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(6, 6, 4, 4);
          const DType t = o.values(o.in(0));
          const int64_t r = rows(o.in(1)), c = columns(o.in(1));
          const bool relu = attrs_as<BatchNormAttrs>(op.attrs).relu;
          o.expect(o.in(0), r * c, t);
          o.expect(o.in(1), r * c, t);
          o.expect(o.in(2), c, t);
          o.expect(o.in(3), c, DType::f32);
          o.expect(o.in(4), c, DType::f32);
          o.expect(o.has_in(5) == relu, "the result where there is a relu");
          if (relu) o.expect(o.in(5), r * c, t);
          o.expect(o.out(0), r * c, t);
          o.expect(o.out(1), c, DType::f32);
          o.expect(o.out(2), c, DType::f32);
          if (o.has_out(3)) o.expect(o.out(3), r * c, t);
          o.no_alias();
        },
};

}  // namespace dstrain::ops
