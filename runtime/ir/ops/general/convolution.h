// convolution: y (windows, samples, outputs) = the sum over the places of a window of x (positions, samples, channels) there
// times the weight (outputs, channels, kernel) of the place. What is outside counts as zero. Positions come first, so that a
// convolution is a sum of products of whole matrices, and what is outside is in none of them.
#pragma once

#include "runtime/ir/ops/general/window.h"

namespace dstrain::ops {

// Checks the attributes and the operands of a convolution or one of its gradients.
inline void expect_convolution(const Operands& o, const ConvolutionAttrs& c, const Buffer& x,
                               const Buffer& weight, const Buffer& y) {
  expect_sizes(o, c.windows);
  o.expect(c.windows.planes == 1 && c.outputs > 0, "one plane, and at least one output");
  o.expect(c.windows.outside == 0, "zeros outside");
  o.expect(x, c.inputs(), x.dtype);
  o.expect(weight, c.weights(), weight.dtype);
  o.expect(y, c.results(), y.dtype);
  o.no_alias();
}

// Returns the FLOPs of all places of the windows; places outside count, too.
inline double convolution_flops(const Program&, const Instruction& op) {
  const auto c = attrs_as<ConvolutionAttrs>(op.attrs);
  return 2 * static_cast<double>(c.windows.windows() * c.windows.samples) *
         static_cast<double>(c.weights());
}

inline constexpr OpRule convolution{
    .repeatable = true,
    .of_model = true,
    .walks_space = true,
    .attrs = kAttrs<ConvolutionAttrs>,
    .profiled =
        [](const Program& p, const Instruction& op, const WeightSizes&) {
          const double flops = convolution_flops(p, op);
          return CountedWork{.macs = flops / 2, .flops = flops};
        },
    .module = "Conv",
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(2, 2, 1, 1);
          const DType t = o.values(o.in(0));
          o.expect(o.in(1).dtype == t && o.out(0).dtype == t, "one dtype");
          expect_convolution(o, attrs_as<ConvolutionAttrs>(op.attrs), o.in(0), o.in(1), o.out(0));
        },
    .flops = convolution_flops,
    .backward =
        [](const Instruction& op, Gradients& g) {
          const BufferId x = op.reads[0], weight = op.reads[1], d_y = g.of(op.writes[0]);
          if (g.needs(x)) {
            const BufferId d_x = g.like(x);
            g.emit(OpKind::convolution_input_grad, op.attrs, {d_y, g.again(weight)}, {d_x});
            g.contribute(x, d_x);
          }
          g.emit_weight(OpKind::convolution_weight_grad, op.attrs, {d_y, x}, {weight});
        },
};

inline constexpr OpRule convolution_input_grad{
    .walks_space = true,
    .attrs = kAttrs<ConvolutionAttrs>,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(2, 2, 1, 1);
          const DType t = o.values(o.in(0));
          o.expect(o.in(1).dtype == t && o.out(0).dtype == t, "one dtype");
          expect_convolution(o, attrs_as<ConvolutionAttrs>(op.attrs), o.out(0), o.in(1), o.in(0));
        },
    .flops = convolution_flops,
};

inline constexpr OpRule convolution_weight_grad{
    .walks_space = true,
    .attrs = kAttrs<ConvolutionAttrs>,
    .sums = {.count = 1},
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(2, 2, 1, 1);
          o.expect(o.in(1).dtype == o.values(o.in(0)), "one dtype");
          o.expect(o.out(0).dtype == DType::f32, "a weight's gradient is f32");
          expect_convolution(o, attrs_as<ConvolutionAttrs>(op.attrs), o.in(1), o.out(0), o.in(0));
        },
    .flops = convolution_flops,
};

}  // namespace dstrain::ops
