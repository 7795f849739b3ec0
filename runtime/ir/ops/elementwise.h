// Ops on activations, element by element: activation functions, gates, residual plus dropout, addition, a factor, a limit.
#pragma once

#include "runtime/ir/ops/operands.h"

namespace dstrain::ops {

inline void same_elements(const Operands& o, size_t inputs) {
  const int64_t n = o.out(0).shape.elements();
  const DType t = o.values(o.in(0));
  for (size_t i = 0; i < inputs; ++i) o.expect(o.in(i), n, t);
  o.expect(o.out(0), n, t);
}

inline constexpr OpRule activation{
    .repeatable = true,
    .of_model = true,
    .attrs = kAttrs<ActivationAttrs>,
    .profiled = flops_per_element<1>,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 1, 1, 1);
          same_elements(o, 1);
          const Activation kind = attrs_as<ActivationAttrs>(op.attrs).activation;
          o.expect(kind != Activation::none, "no activation is named");
          o.expect(kind != Activation::silu, "silu is computed by gated");
          o.no_alias();
        },
    .backward =
        [](const Instruction& op, Gradients& g) {
          const BufferId x = op.reads[0], y = op.writes[0], d_y = g.of(y);
          if (!g.needs(x)) return;
          const BufferId ref =
              attrs_as<ActivationAttrs>(op.attrs).activation == Activation::relu ? y : x;
          const BufferId d_x = g.place_of(x, d_y);
          g.emit(OpKind::activation_grad, op.attrs, {d_y, ref}, {d_x});
          g.contribute(x, d_x);
        },
    .axes = axes_are<"row channel -> row channel">,
};

inline constexpr OpRule activation_grad{
    .attrs = kAttrs<ActivationAttrs>,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(2, 2, 1, 1);
          same_elements(o, 2);
          o.no_alias(0, 0);
        },
    .axes = axes_are<"row channel, row channel -> row channel">,
};

// Returns the axes of an op with dropout. Masks follow from the columns of whole rows.
template <AxesText kWithDropout, AxesText kWithout>
OpAxes dropout_axes(const Program& p, const Instruction& op) {
  const bool drops = attrs_as<DropoutAttrs>(op.attrs).dropout > 0;
  return drops ? axes_are<kWithDropout>(p, op) : axes_are<kWithout>(p, op);
}

inline constexpr OpRule add_dropout{
    .repeatable = true,
    .of_model = true,
    .attrs = kAttrs<DropoutAttrs>,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(2, 2, 1, 1);
          same_elements(o, 2);
          const auto attrs = attrs_as<DropoutAttrs>(op.attrs);
          o.expect_samples(attrs.part, rows(o.in(0)), attrs.seq_len);
          o.no_alias();
        },
    .backward =
        [](const Instruction& op, Gradients& g) {
          const BufferId x = op.reads[0], h = op.reads[1], d_y = g.of(op.writes[0]);
          if (g.needs(h)) {
            if (attrs_as<DropoutAttrs>(op.attrs).dropout > 0) {
              const BufferId d_h = g.like(h);
              g.emit(OpKind::dropout_grad, op.attrs, {d_y}, {d_h});
              g.contribute(h, d_h);
            } else {
              g.contribute(h, d_y);
            }
          }
          if (g.needs(x)) g.contribute(x, d_y);
        },
    .axes = dropout_axes<"row channel!, row channel -> row channel",
                         "row channel, row channel -> row channel">,
};

// Dropout is linear: the gradient of its input is dropout of its result's gradient, by the same mask.
inline constexpr OpRule dropout_grad{
    .repeatable = true,
    .of_model = true,
    .attrs = kAttrs<DropoutAttrs>,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 1, 1, 1);
          same_elements(o, 1);
          o.no_alias();
        },
    .backward =
        [](const Instruction& op, Gradients& g) {
          const BufferId x = op.reads[0];
          if (!g.needs(x)) return;
          const BufferId d_x = g.like(x);
          g.emit(OpKind::dropout_grad, op.attrs, {g.of(op.writes[0])}, {d_x});
          g.contribute(x, d_x);
        },
    .axes = dropout_axes<"row channel! -> row channel", "row channel -> row channel">,
};

inline constexpr OpRule add{
    .repeatable = true,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(2, 2, 1, 1);
          same_elements(o, 2);
          o.no_alias();
        },
    .axes = axes_are<"row channel, row channel -> row channel">,
};

inline void expect_gate(const Operands& o) {
  const Activation kind = attrs_as<ActivationAttrs>(o.attrs()).activation;
  o.expect(kind != Activation::none && kind != Activation::relu,
           "the gate's activation is silu, gelu or gelu_erf");
}

inline constexpr OpRule gated{
    .repeatable = true,
    .of_model = true,
    .attrs = kAttrs<ActivationAttrs>,
    .profiled = flops_per_element<1>,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(2, 2, 1, 1);
          same_elements(o, 2);
          expect_gate(o);
          o.no_alias();
        },
    .backward =
        [](const Instruction& op, Gradients& g) {
          const BufferId gate = op.reads[0], up = op.reads[1], d_y = g.of(op.writes[0]);
          if (!g.needs(gate) && !g.needs(up)) return;
          const BufferId d_gate = g.place_of(gate, d_y), d_up = g.like(up);
          g.emit(OpKind::gated_grad, op.attrs, {d_y, gate, up}, {d_gate, d_up});
          if (g.needs(gate)) g.contribute(gate, d_gate);
          if (g.needs(up)) g.contribute(up, d_up);
        },
    .axes = axes_are<"row channel, row channel -> row channel">,
};

inline constexpr OpRule gated_grad{
    .attrs = kAttrs<ActivationAttrs>,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(3, 3, 2, 2);
          same_elements(o, 3);
          o.expect(o.out(1), o.out(0).shape.elements(), o.values(o.in(0)));
          expect_gate(o);
          o.no_alias(0, 0);
        },
    .axes = axes_are<"row channel, row channel, row channel -> row channel, row channel">,
};

// y = cap * tanh(x / cap): nearly x where that is small, and never further from 0 than cap.
inline void expect_cap(const Operands& o) {
  const float cap = attrs_as<SoftcapAttrs>(o.attrs()).cap;
  o.expect(cap > 0 && cap < 1e30f, "the cap is above 0");
}

inline constexpr OpRule softcap{
    .repeatable = true,
    .of_model = true,
    .attrs = kAttrs<SoftcapAttrs>,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 1, 1, 1);
          same_elements(o, 1);
          expect_cap(o);
          o.no_alias();
        },
    .backward =
        [](const Instruction& op, Gradients& g) {
          const BufferId x = op.reads[0], d_y = g.of(op.writes[0]);
          if (!g.needs(x)) return;
          const BufferId d_x = g.place_of(x, d_y);
          g.emit(OpKind::softcap_grad, op.attrs, {d_y, x}, {d_x});
          g.contribute(x, d_x);
        },
    .axes = axes_are<"row channel -> row channel">,
};

inline constexpr OpRule softcap_grad{
    .attrs = kAttrs<SoftcapAttrs>,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(2, 2, 1, 1);
          same_elements(o, 2);
          expect_cap(o);
          o.no_alias(0, 0);
        },
    .axes = axes_are<"row channel, row channel -> row channel">,
};

// The gradient of its input is its result's gradient times the same factor.
inline constexpr OpRule scale{
    .repeatable = true,
    .of_model = true,
    .attrs = kAttrs<ScaleAttrs>,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 1, 1, 1);
          same_elements(o, 1);
          o.no_alias(0, 0);
        },
    .backward =
        [](const Instruction& op, Gradients& g) {
          const BufferId x = op.reads[0], d_y = g.of(op.writes[0]);
          if (!g.needs(x)) return;
          const BufferId d_x = g.place_of(x, d_y);
          g.emit(OpKind::scale, op.attrs, {d_y}, {d_x});
          g.contribute(x, d_x);
        },
    .axes = axes_are<"row channel -> row channel">,
};

}  // namespace dstrain::ops
