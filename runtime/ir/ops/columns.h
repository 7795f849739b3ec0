// The columns of rows brought into parts, one after the other, so that each part is what one rank gets of an all_to_all;
// and back. Copies: several parts have the same columns, whose gradients add up.
#pragma once

#include "runtime/ir/ops/operands.h"

namespace dstrain::ops {

// Checks the whole rows against their parts.
inline void expect_columns(const Operands& o, const Buffer& whole, const Buffer& split) {
  const auto attrs = attrs_as<ColumnsAttrs>(o.attrs());
  const DType t = o.values(whole);
  o.expect(attrs.parts > 0 && attrs.copies > 0 && attrs.parts % attrs.copies == 0,
           "parts must divide into copies");
  const int64_t blocks = attrs.parts / attrs.copies;
  o.expect(attrs.sections > 0 && columns(whole) % (attrs.sections * blocks) == 0,
           "columns must divide into sections of equal blocks");
  o.expect(whole, whole.shape.elements(), t);
  o.expect(split, whole.shape.elements() * attrs.copies, t);
}

// Checks an op that reads whole rows and writes their parts, or the other way round.
template <bool kReadsWhole>
void check_columns(const Program& p, const Instruction& op) {
  const Operands o(p, op);
  o.count(1, 1, 1, 1);
  if constexpr (kReadsWhole)
    expect_columns(o, o.in(0), o.out(0));
  else
    expect_columns(o, o.out(0), o.in(0));
  o.no_alias();
}

// Emits the op that brings a gradient the other way.
inline void columns_backward(const Instruction& op, Gradients& g, OpKind inverse) {
  const BufferId x = op.reads[0];
  if (!g.needs(x)) return;
  const BufferId d_x = g.like(x);
  g.emit(inverse, op.attrs, {g.of(op.writes[0])}, {d_x});
  g.contribute(x, d_x);
}

inline constexpr OpRule split_columns{
    .repeatable = true,
    .attrs = kAttrs<ColumnsAttrs>,
    .check = check_columns<true>,
    .backward = [](const Instruction& op,
                   Gradients& g) { columns_backward(op, g, OpKind::join_columns); },
};

inline constexpr OpRule join_columns{
    .repeatable = true,
    .attrs = kAttrs<ColumnsAttrs>,
    .check = check_columns<false>,
    .backward = [](const Instruction& op,
                   Gradients& g) { columns_backward(op, g, OpKind::split_columns); },
};

}  // namespace dstrain::ops
