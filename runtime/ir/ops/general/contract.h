// Any batch of products: y (batch, m, n) = the sum over k of a (batch, m, k) b (batch, n, k). The operands are read through
// views, so that each may be transposed or broadcast. Each product adds over k as the products of `linear` do.
#pragma once

#include "runtime/ir/ops/general/slopes.h"

namespace dstrain::ops {

// Returns the space of a batch of matrices.
inline Shape matrices(const Shape& batch, int64_t rows, int64_t columns) {
  Shape space = batch;
  space.append(rows);
  space.append(columns);
  return space;
}

// Returns a view of a batch of matrices, with rows and columns exchanged.
inline View transposed(View view, const Shape& batch) {
  const auto row = static_cast<size_t>(batch.rank);
  std::swap(view.strides[row], view.strides[row + 1]);
  return view;
}

// Emits the gradient of operand x, which has the view `of_x` of `space`: a product of the other two.
inline void emit_contract_grad(Gradients& g, BufferId x, const View& of_x, const Shape& space,
                               const ContractAttrs& attrs, std::vector<BufferId> reads) {
  const Program& p = g.program();
  const bool dense = is_dense(of_x, space) && p.at(x).shape.elements() == space.elements();
  const bool parameter = p.at(x).parameter >= 0;
  if (dense && parameter) return g.emit_weight(OpKind::contract, attrs, std::move(reads), {x});
  const BufferId d = dense ? g.like(x) : g.fresh(x, space, parameter ? DType::f32 : p.at(x).dtype);
  g.emit(OpKind::contract, attrs, std::move(reads), {d});
  if (dense) return g.contribute(x, d);
  Term term{.space = space};
  term.formula = term.operand(d, dense_view(space));
  emit_through(g, x, of_x, std::move(term));
}

inline constexpr OpRule contract{
    .repeatable = true,
    .of_model = true,
    .walks_space = true,
    .attrs = kAttrs<ContractAttrs>,
    .profiled =
        [](const Program&, const Instruction& op, const WeightSizes&) {
          const auto c = attrs_as<ContractAttrs>(op.attrs);
          const double macs = static_cast<double>(c.batch.elements()) * static_cast<double>(c.m) *
                              static_cast<double>(c.n) * static_cast<double>(c.k);
          return CountedWork{.macs = macs, .flops = 2 * macs};
        },
    .sums = {.count = 1},
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(2, 2, 1, 1);
          const auto c = attrs_as<ContractAttrs>(op.attrs);
          o.expect(c.batch.rank + 2 <= Shape::kMaxRank && c.m > 0 && c.n > 0 && c.k > 0,
                   "sizes of products");
          const Shape a = matrices(c.batch, c.m, c.k), b = matrices(c.batch, c.n, c.k);
          o.expect(!c.a.bounded(a) && !c.b.bounded(b), "views of products have no bounds");
          o.expect(o.in(0).dtype == o.in(1).dtype, "both operands have the same dtype");
          o.values(o.in(0));
          o.values(o.out(0));
          o.expect(o.out(0).dtype == DType::f32 || o.out(0).dtype == o.in(0).dtype,
                   "a product has the operands' dtype, or f32");
          o.expect(o.out(0), c.batch.elements() * c.m * c.n, o.out(0).dtype);
          expect_inside(o, 0, c.a, a);
          expect_inside(o, 1, c.b, b);
          o.no_alias();
        },
    .flops =
        [](const Program&, const Instruction& op) {
          const auto c = attrs_as<ContractAttrs>(op.attrs);
          return 2 * static_cast<double>(c.batch.elements()) * static_cast<double>(c.m) *
                 static_cast<double>(c.n) * static_cast<double>(c.k);
        },
    .backward =
        [](const Instruction& op, Gradients& g) {
          const auto c = attrs_as<ContractAttrs>(op.attrs);
          const View d_y = dense_view(matrices(c.batch, c.m, c.n));
          const BufferId d = g.of(op.writes[0]), a = op.reads[0], b = op.reads[1];
          if (g.needs(a))
            emit_contract_grad(g, a, c.a, matrices(c.batch, c.m, c.k),
                               {.batch = c.batch,
                                .m = c.m,
                                .n = c.k,
                                .k = c.n,
                                .a = d_y,
                                .b = transposed(c.b, c.batch)},
                               {d, b});
          if (g.needs(b))
            emit_contract_grad(g, b, c.b, matrices(c.batch, c.n, c.k),
                               {.batch = c.batch,
                                .m = c.n,
                                .n = c.k,
                                .k = c.m,
                                .a = transposed(d_y, c.batch),
                                .b = transposed(c.a, c.batch)},
                               {d, a});
        },
};

}  // namespace dstrain::ops
