// scan: the running sums of lines of x. Its gradient is a scan in the other direction. Order of sums: docs/general-ops.md.
#pragma once

#include "runtime/ir/ops/general/lines.h"
#include "runtime/ir/ops/general/slopes.h"

namespace dstrain::ops {

inline constexpr OpRule scan{
    .repeatable = true,
    .of_model = true,
    .walks_space = true,
    .attrs = kAttrs<ScanAttrs>,
    .sums = {.count = 1},
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 1, 1, 1);
          expect_lines(o, attrs_as<ScanAttrs>(op.attrs).lines);
          if (o.in(0).dtype != DType::i32) o.values(o.out(0));
          const DType result = o.in(0).dtype == DType::i32 ? DType::i32 : o.out(0).dtype;
          o.expect(o.out(0), o.in(0).shape.elements(), result);
          o.no_alias();
        },
    .backward =
        [](const Instruction& op, Gradients& g) {
          Instruction back = op;
          auto attrs = attrs_as<ScanAttrs>(op.attrs);
          attrs.reversed = !attrs.reversed;
          back.attrs = attrs;
          emit_transpose(back, OpKind::scan, g);
        },
    .axes =
        [](const Program& p, const Instruction& op) {
          const Lines lines = attrs_as<ScanAttrs>(op.attrs).lines;
          return axes_of_lines(p, op, lines, lines.size);
        },
};

}  // namespace dstrain::ops
