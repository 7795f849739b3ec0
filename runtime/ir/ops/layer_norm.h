// y = (x - mean) * rstd * weight + bias over the last dimension (C).
#pragma once

#include "runtime/ir/ops/operands.h"

namespace dstrain::ops {

inline constexpr OpRule layer_norm{
    .repeatable = true,
    .of_model = true,
    .attrs = kAttrs<LayerNormAttrs>,
    .profiled = flops_per_element<5>,
    .module = "LayerNorm",
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(3, 3, 3, 3);
          const DType t = o.values(o.in(0));
          const int64_t r = rows(o.in(0)), c = columns(o.in(0));
          o.expect(o.in(0), r * c, t);
          o.expect(o.in(1), c, t);
          o.expect(o.in(2), c, t);
          o.expect(o.out(0), r * c, t);
          o.expect(o.out(1), r, DType::f32);
          o.expect(o.out(2), r, DType::f32);
          o.no_alias();
        },
    .backward =
        [](const Instruction& op, Gradients& g) {
          const BufferId x = op.reads[0], weight = op.reads[1], bias = op.reads[2];
          const BufferId mean = op.writes[1], rstd = op.writes[2], d_y = g.of(op.writes[0]);
          if (g.needs(x)) {  // also adds the gradient that x already has: the residual stream's
            const BufferId d_x = g.like(x);
            g.emit(OpKind::layer_norm_input_grad, {}, {d_y, x, weight, mean, rstd, g.of(x)}, {d_x});
            g.replace(x, d_x);
          }
          g.emit_weights_together(OpKind::layer_norm_weight_grad, {}, {d_y, x, mean, rstd},
                                  {weight, bias});
        },
    .axes = axes_are<"row channel!, channel, channel -> row channel, row, row">,
};

// Checks what layer_norm_input_grad and layer_norm_grad have alike: the reads d_y, x, weight, mean, rstd and an optional
// gradient to add, and d_x, which is written. Returns C.
inline int64_t expect_norm_grad(const Operands& o) {
  const int64_t r = rows(o.in(1)), c = columns(o.in(1));
  const DType t = o.values(o.in(0));
  o.expect(o.in(0), r * c, t);
  o.expect(o.in(1), r * c, t);
  o.expect(o.in(2), c, t);
  o.expect(o.in(3), r, DType::f32);
  o.expect(o.in(4), r, DType::f32);
  if (o.has_in(5)) o.expect(o.in(5), r * c, t);
  o.expect(o.out(0), r * c, t);
  o.no_alias();
  return c;
}

inline constexpr OpRule layer_norm_input_grad{
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(6, 6, 1, 1);
          expect_norm_grad(o);
        },
    .axes = axes_are<"row channel!, row channel, channel, row, row, row channel -> row channel">,
};

inline constexpr OpRule layer_norm_weight_grad{
    .gradient_terms = GradientTerms::rows,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(4, 4, 2, 2);
          const DType t = o.values(o.in(0));
          const int64_t r = rows(o.in(1)), c = columns(o.in(1));
          o.expect(o.in(0), r * c, t);
          o.expect(o.in(1), r * c, t);
          o.expect(o.in(2), r, DType::f32);
          o.expect(o.in(3), r, DType::f32);
          o.expect(o.out(0), c, DType::f32);
          o.expect(o.out(1), c, DType::f32);
        },
    .axes = axes_are<"row channel, row channel, row, row -> channel, channel">,
};

// Returns the two gradients of one norm as one instruction: input gradients are never added to others.
inline std::optional<Instruction> join_norm_grads(const Instruction& first,
                                                  const Instruction& second) {
  const std::vector<BufferId>& in = first.reads;
  if (second.reads != std::vector{in[0], in[1], in[3], in[4]}) return std::nullopt;
  Instruction one = first;
  one.accumulate = second.accumulate;
  return one;
}

// Returns a sum and its norm as one instruction.
inline std::optional<Instruction> join_add_and_norm(const Instruction& first,
                                                    const Instruction& second) {
  if (second.reads[0] != first.writes[0]) return std::nullopt;
  Instruction one = first;
  one.attrs = AddLayerNormAttrs{attrs_as<DropoutAttrs>(first.attrs),
                                attrs_as<LayerNormAttrs>(second.attrs)};
  one.reads.insert(one.reads.end(), second.reads.begin() + 1, second.reads.end());
  return one;
}

// Made by the pass `join_norms`, after the backward pass: they have none.
inline constexpr OpRule layer_norm_grad{
    .gradient_terms = GradientTerms::rows,
    .sums = {.first = 1},
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(6, 6, 3, 3);
          const int64_t c = expect_norm_grad(o);
          o.expect(o.out(1), c, DType::f32);
          o.expect(o.out(2), c, DType::f32);
        },
    .axes = axes_are<"row channel!, row channel, channel, row, row, row channel -> row channel, "
                     "channel, channel">,
    .joins = TwoOps{.first = OpKind::layer_norm_input_grad,
                    .second = OpKind::layer_norm_weight_grad,
                    .join = join_norm_grads},
};

inline constexpr OpRule add_layer_norm{
    .repeatable = true,
    .of_model = true,
    .attrs = kAttrs<AddLayerNormAttrs>,
    .profiled = flops_per_element<5>,
    .module = "LayerNorm",
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(4, 4, 4, 4);
          const DType t = o.values(o.in(0));
          const int64_t r = rows(o.in(0)), c = columns(o.in(0));
          o.expect(o.in(0), r * c, t);
          o.expect(o.in(1), r * c, t);
          o.expect(o.in(2), c, t);
          o.expect(o.in(3), c, t);
          o.expect(o.out(0), r * c, t);
          o.expect(o.out(1), r * c, t);
          o.expect(o.out(2), r, DType::f32);
          o.expect(o.out(3), r, DType::f32);
          const auto attrs = attrs_as<AddLayerNormAttrs>(op.attrs).add;
          o.expect_samples(attrs.part, r, attrs.seq_len);
          o.no_alias();
        },
    .axes = axes_are<
        "row channel!, row channel, channel, channel -> row channel, row channel, row, row">,
    .joins =
        TwoOps{
            .first = OpKind::add_dropout, .second = OpKind::layer_norm, .join = join_add_and_norm},
};

}  // namespace dstrain::ops
