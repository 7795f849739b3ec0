// max_pool: y = the largest element of each window of x, of each sample and channel by itself; NaN is the largest. Places outside
// have none. max_pool_grad: x = the sums of what windows have whose first largest element it is.
#pragma once

#include "runtime/ir/ops/general/window.h"

namespace dstrain::ops {

// Checks the attributes and the operands: elements of x, and one of each window.
inline void expect_pool(const Operands& o, const WindowAttrs& attrs, const Buffer& x,
                        const Buffer& y) {
  expect_sizes(o, attrs);
  const DType t = o.values(x);
  o.expect(x, attrs.planes * attrs.positions() * attrs.samples * attrs.channels, t);
  o.expect(y, attrs.planes * attrs.windows() * attrs.samples * attrs.channels, t);
  o.no_alias();
}

inline constexpr OpRule max_pool{
    .repeatable = true,
    .of_model = true,
    .walks_space = true,
    .attrs = kAttrs<WindowAttrs>,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 1, 1, 1);
          expect_pool(o, attrs_as<WindowAttrs>(op.attrs), o.in(0), o.out(0));
        },
    .backward =
        [](const Instruction& op, Gradients& g) {
          const BufferId x = op.reads[0], d_x = g.like(x);
          g.emit(OpKind::max_pool_grad, op.attrs, {g.of(op.writes[0]), x}, {d_x});
          g.contribute(x, d_x);
        },
};

inline constexpr OpRule max_pool_grad{
    .walks_space = true,
    .attrs = kAttrs<WindowAttrs>,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(2, 2, 1, 1);
          const auto attrs = attrs_as<WindowAttrs>(op.attrs);
          expect_pool(o, attrs, o.out(0), o.in(0));
          expect_pool(o, attrs, o.in(1), o.in(0));
        },
};

}  // namespace dstrain::ops
