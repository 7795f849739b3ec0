// Rotary position embedding (runtime/ir/rotary.h). Angles follow from the attributes and the documents alone, so the
// backward pass, which rotates the other way, needs no value of the forward pass.
#pragma once

#include "runtime/ir/ops/operands.h"
#include "runtime/ir/rotary.h"

namespace dstrain::ops {

inline void expect_rotation(const Operands& o) {
  o.count(1, 2, 1, 1);
  const auto attrs = attrs_as<RotaryAttrs>(o.attrs());
  const Buffer& x = o.in(0);
  o.expect(x, x.shape.elements(), o.values(x));
  o.expect(o.out(0), x.shape.elements(), x.dtype);
  o.expect(rotary_problem(attrs).empty(), rotary_problem(attrs));
  o.expect(columns(x) % (attrs.sections * attrs.head_size) == 0, "columns must divide into heads");
  o.expect_samples(attrs.part, rows(x), attrs.seq_len);
  o.expect_documents(1, rows(x));
}

inline OpAxes rotary_axes(const Program&, const Instruction& op) {
  if (attrs_as<RotaryAttrs>(op.attrs).sections == 3) return "row head*3, row -> row head*3";
  return "row head, row -> row head";
}

inline constexpr OpRule rotary{
    .repeatable = true,
    .of_model = true,
    .attrs = kAttrs<RotaryAttrs>,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          expect_rotation(o);
          o.no_alias();
        },
    .backward =
        [](const Instruction& op, Gradients& g) {
          const BufferId x = op.reads[0], d_y = g.of(op.writes[0]);
          if (!g.needs(x)) return;
          const BufferId d_x = g.place_of(x, d_y);
          std::vector<BufferId> reads = op.reads;
          reads[0] = d_y;
          g.emit(OpKind::rotary_grad, op.attrs, reads, {d_x});
          g.contribute(x, d_x);
        },
    .axes = rotary_axes,
};

inline constexpr OpRule rotary_grad{
    .attrs = kAttrs<RotaryAttrs>,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          expect_rotation(o);
          o.no_alias(0, 0);
        },
    .axes = rotary_axes,
};

}  // namespace dstrain::ops
