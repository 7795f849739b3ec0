// window: y = the elements of each window of x, window by window: a convolution is a product of these rows and the weights, and
// pooling is a reduction of them. window_grad: x = the sums of y over the windows that have a position, in the order of their
// places in a window. Each is the gradient of the other.
#pragma once

#include "runtime/ir/ops/general/slopes.h"

namespace dstrain::ops {

// Checks the sizes of windows, and that there are samples and channels.
inline void expect_sizes(const Operands& o, const WindowAttrs& attrs) {
  for (const WindowAttrs::Dimension& d : attrs.dimensions)
    o.expect(
        d.size > 0 && d.kernel > 0 && d.stride > 0 && d.padding >= 0 && d.dilation > 0 && d.out > 0,
        "sizes of windows");
  o.expect(attrs.planes > 0 && attrs.samples > 0 && attrs.channels > 0,
           "at least one plane, one sample and one channel");
}

// Checks the attributes and the operands: elements of x, and those of windows.
inline void expect_windows(const Operands& o, const WindowAttrs& attrs, const Buffer& x,
                           const Buffer& y) {
  expect_sizes(o, attrs);
  o.values(x);
  o.values(y);
  o.expect(x, attrs.planes * attrs.positions() * attrs.samples * attrs.channels, x.dtype);
  o.expect(y, attrs.planes * attrs.windows() * attrs.samples * attrs.kernel() * attrs.channels,
           y.dtype);
}

inline constexpr OpRule window{
    .repeatable = true,
    .of_model = true,
    .walks_space = true,
    .attrs = kAttrs<WindowAttrs>,
    .sums = {.count = 1},
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 1, 1, 1);
          expect_windows(o, attrs_as<WindowAttrs>(op.attrs), o.in(0), o.out(0));
          o.no_alias();
        },
    .backward = [](const Instruction& op,
                   Gradients& g) { emit_transpose(op, OpKind::window_grad, g); },
};

inline constexpr OpRule window_grad{
    .repeatable = true,
    .of_model = true,
    .walks_space = true,
    .attrs = kAttrs<WindowAttrs>,
    .sums = {.count = 1},
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 1, 1, 1);
          expect_windows(o, attrs_as<WindowAttrs>(op.attrs), o.out(0), o.in(0));
          o.no_alias();
        },
    .backward =
        [](const Instruction& op, Gradients& g) {
          Instruction zeros = op;  // what is outside has no gradient
          auto attrs = attrs_as<WindowAttrs>(op.attrs);
          attrs.outside = 0;
          zeros.attrs = attrs;
          emit_transpose(zeros, OpKind::window, g);
        },
};

}  // namespace dstrain::ops
