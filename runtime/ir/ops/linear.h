// y (R,N) = activation(x (R,K) w (N,K)^T + bias (N)). The slope of relu follows from y. The pass `fuse`
// (runtime/plan/passes/fuse.cpp) adds gelu or a residual to a product after the backward pass has been derived.
#pragma once

#include "runtime/ir/ops/operands.h"
#include "runtime/ir/ops/row_blocks.h"

namespace dstrain::ops {

inline double product_flops(const Buffer& a, int64_t n) {
  return 2.0 * static_cast<double>(a.shape.elements()) * static_cast<double>(n);
}

inline constexpr OpRule linear{
    .repeatable = true,
    .of_model = true,
    .attrs = kAttrs<ActivationAttrs>,
    .profiled =
        [](const Program& p, const Instruction& op, const WeightSizes& weight) {
          const double r = static_cast<double>(rows(p.at(op.reads[0])));
          CountedWork work{.macs = r * weight.elements, .flops = 2 * r * weight.elements};
          if (attrs_as<ActivationAttrs>(op.attrs).activation != Activation::none)
            work.flops += r * weight.features;
          return work;
        },
    .module = "Linear",
    .packed_weight = 3,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          const bool gelu = attrs_as<ActivationAttrs>(op.attrs).activation == Activation::gelu;
          o.count(2, 5, 1, gelu ? 2 : 1);
          const DType t = o.values(o.in(0));
          const int64_t r = rows(o.in(0)), k = columns(o.in(0)), n = o.in(1).shape[0];
          o.expect(o.in(0), r * k, t);
          o.expect(o.in(1), n * k, t);
          if (o.has_in(2)) o.expect(o.in(2), n, t);
          o.expect(o.out(0), r * n, t);
          o.expect(columns(o.out(0)) == n, "y has the wrong number of columns");
          if (o.has_out(1)) o.expect(o.out(1), r * n, t);
          if (o.has_in(4)) {
            o.expect(o.in(4), r * n, t);
            o.expect(attrs_as<ActivationAttrs>(op.attrs).activation == Activation::none,
                     "a residual is not added to an activation");
          }
          o.no_alias();
        },
    .flops =
        [](const Program& p, const Instruction& op) {
          return product_flops(p.at(op.reads[0]), p.at(op.reads[1]).shape[0]);
        },
    .backward =
        [](const Instruction& op, Gradients& g) {
          const BufferId x = op.reads[0], w = op.reads[1], y = op.writes[0];
          const BufferId bias = op.reads.size() > 2 ? op.reads[2] : kNone;
          BufferId d_y = g.of(y);
          const Activation epilogue = attrs_as<ActivationAttrs>(op.attrs).activation;
          check(epilogue != Activation::gelu && op.reads.size() < 5,
                "gelu and residuals join products later");
          if (epilogue != Activation::none) {
            const BufferId d_pre = g.place_of(y, d_y);
            g.emit(OpKind::activation_grad, op.attrs, {d_y, y}, {d_pre});
            d_y = d_pre;
          }
          if (g.needs(x)) {
            const BufferId d_x = g.like(x);
            g.emit(OpKind::linear_input_grad, {}, {d_y, g.again(w)}, {d_x});
            g.contribute(x, d_x);
          }
          g.emit_weight(OpKind::linear_weight_grad, {}, {d_y, x}, {w});
          g.emit_weight(OpKind::sum_rows, {}, {d_y}, {bias});
        },
    .axes = axes_are<
        "row channel, feature channel, feature, -, row feature -> row feature, row feature">,
    .in_slots =
        [](Program&, Instruction& op, const Slots&) {
          check(op.reads.size() <= 3 && op.writes.size() == 1, "packs and fusions come later");
          op.op = OpKind::row_linear;
        },
};

inline constexpr OpRule linear_input_grad{
    .attrs = kAttrs<ActivationAttrs>,
    .packed_weight = 2,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          const bool gelu = attrs_as<ActivationAttrs>(op.attrs).activation == Activation::gelu;
          o.count(2, gelu ? 4 : 3, 1, 1);
          const DType t = o.values(o.in(0));
          const int64_t r = rows(o.in(0)), n = columns(o.in(0)), k = o.in(1).shape[1];
          if (gelu) o.expect(o.in(3), r * k, t);
          o.expect(o.in(0), r * n, t);
          o.expect(o.in(1), n * k, t);
          o.expect(o.out(0), r * k, t);
          o.no_alias();
        },
    .flops =
        [](const Program& p, const Instruction& op) {
          return product_flops(p.at(op.reads[0]), p.at(op.reads[1]).shape[1]);
        },
    .axes = axes_are<"row feature, feature channel, -, row channel -> row channel">,
};

inline constexpr OpRule linear_weight_grad{
    .gradient_terms = GradientTerms::rows,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(2, 2, 1, 1);
          const DType t = o.values(o.in(0));
          const int64_t r = rows(o.in(0)), n = columns(o.in(0)), k = columns(o.in(1));
          o.expect(o.in(0), r * n, t);
          o.expect(o.in(1), r * k, t);
          o.expect(o.out(0), n * k, DType::f32);
          o.no_alias();
        },
    .flops =
        [](const Program& p, const Instruction& op) {
          return product_flops(p.at(op.reads[0]), columns(p.at(op.reads[1])));
        },
    .axes = axes_are<"row feature, row channel -> feature channel">,
    .sum_order = SumOrder::library_parts,
};

inline constexpr OpRule sum_rows{
    .attrs = kAttrs<SumRowsAttrs>,
    .gradient_terms = GradientTerms::rows,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 1, 1, 1);
          const auto attrs = attrs_as<SumRowsAttrs>(op.attrs);
          const int64_t r = rows(o.in(0)), n = columns(o.in(0));
          o.expect(attrs.block >= 0 && (attrs.block == 0 || !attrs.of_blocks),
                   "sums of blocks are either made or added");
          o.expect(o.in(0), r * n, attrs.of_blocks ? DType::f32 : o.values(o.in(0)));
          const int64_t sums = attrs.block == 0 ? 1 : RowBlocks(r, attrs.block).count;
          o.expect(o.out(0), sums * n, DType::f32);
        },
    .axes = [](const Program&, const Instruction& op) -> OpAxes {
      if (attrs_as<SumRowsAttrs>(op.attrs).of_blocks) return "- channel -> channel";
      return "row channel -> channel";
    },
    .sum_order = SumOrder::row_blocks,
};

inline constexpr OpRule pack_weight{
    .attrs = kAttrs<PackAttrs>,
    .prepares_weight = true,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 1, 1, 1);
          o.expect(o.in(0), o.in(0).shape.elements(), o.values(o.in(0)));
          o.expect(o.out(0).dtype == DType::u8, "a packed weight is bytes");
        },
};

}  // namespace dstrain::ops
