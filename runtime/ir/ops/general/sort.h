// sort: which elements of each line of x come first, all of them or so many. Indices have no gradient: values are what `take`
// reads by them, and their gradient is its.
#pragma once

#include "runtime/ir/ops/general/lines.h"

namespace dstrain::ops {

inline constexpr OpRule sort{
    .repeatable = true,
    .of_model = true,
    .walks_space = true,
    .attrs = kAttrs<SortAttrs>,
    .sums = {.count = 0},
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 1, 1, 1);
          const auto attrs = attrs_as<SortAttrs>(op.attrs);
          expect_lines(o, attrs.lines);
          o.expect(attrs.kept > 0 && attrs.kept <= attrs.lines.size,
                   "as many elements are kept as a line has, or fewer");
          o.expect(o.out(0), attrs.lines.count(o.in(0).shape.elements()) * attrs.kept, DType::i32);
          o.no_alias();
        },
    .axes =
        [](const Program& p, const Instruction& op) {
          const auto attrs = attrs_as<SortAttrs>(op.attrs);
          return axes_of_lines(p, op, attrs.lines, attrs.kept);
        },
};

}  // namespace dstrain::ops
