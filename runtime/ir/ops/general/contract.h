// Any batch of products: y (batch, m, n) = the sum over k of a (batch, m, k) b (batch, n, k). The operands are read through
// views, so that each may be transposed or broadcast. Each product adds over k as the products of `linear` do.
#pragma once

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "runtime/ir/ops/general/slopes.h"

namespace dstrain::ops {

// Returns the space of a batch of matrices.
inline Shape matrices(const Shape& batch, int64_t rows, int64_t columns) {
  Shape space = batch;
  space.append(rows);
  space.append(columns);
  return space;
}

// Returns the dimensions of the batch that a result has.
inline Shape batch_of_result(const ContractAttrs& c) {
  Shape batch;
  for (int d = c.summed; d < c.batch.rank; ++d) batch.append(c.batch[d]);
  return batch;
}

// Returns a view of a batch of matrices, with rows and columns exchanged.
inline View transposed(View view, const Shape& batch) {
  const auto row = static_cast<size_t>(batch.rank);
  std::swap(view.strides[row], view.strides[row + 1]);
  return view;
}

// Returns the batch's dimensions in another order: first those along which a view reads the same matrices. `same`: set to
// their number.
inline std::vector<size_t> same_dimensions_first(const Shape& batch, const View& view, int& same) {
  std::vector<size_t> order(static_cast<size_t>(batch.rank));
  std::iota(order.begin(), order.end(), size_t{0});
  const auto others = std::stable_partition(order.begin(), order.end(),
                                            [&view](size_t d) { return view.strides[d] == 0; });
  same = static_cast<int>(others - order.begin());
  return order;
}

// Puts the first numbers of a list into another order.
template <class Numbers>
void reorder(Numbers& numbers, const std::vector<size_t>& order) {
  const Numbers before = numbers;
  for (size_t d = 0; d < order.size(); ++d) numbers[d] = before[order[d]];
}

// Emits the gradient of operand x, which has the view `of_x`: a product of the other two. It is added in f32 over the
// dimensions of the batch in which x is the same.
inline void emit_contract_grad(Gradients& g, BufferId x, View of_x, ContractAttrs attrs,
                               std::vector<BufferId> reads) {
  const Program& p = g.program();
  const std::vector<size_t> order = same_dimensions_first(attrs.batch, of_x, attrs.summed);
  reorder(attrs.batch.dims, order);
  for (View* of : {&of_x, &attrs.a, &attrs.b}) reorder(of->strides, order);
  const Shape batch = batch_of_result(attrs), space = matrices(batch, attrs.m, attrs.n);
  View view{.offset = of_x.offset};
  std::copy(of_x.strides.begin() + attrs.summed, of_x.strides.end(), view.strides.begin());
  const bool dense = is_dense(view, space) && p.at(x).shape.elements() == space.elements();
  const bool parameter = p.at(x).parameter >= 0;
  if (dense && parameter) return g.emit_weight(OpKind::contract, attrs, std::move(reads), {x});
  // What is added further on is not rounded before.
  const auto row = static_cast<size_t>(batch.rank);
  const bool added =
      (attrs.m > 1 && view.strides[row] == 0) || (attrs.n > 1 && view.strides[row + 1] == 0);
  const bool exact = parameter || attrs.summed > 0 || added;
  const bool like = dense && !(exact && p.at(x).dtype != DType::f32);
  const BufferId d = like ? g.like(x) : g.fresh(x, space, exact ? DType::f32 : p.at(x).dtype);
  g.emit(OpKind::contract, attrs, std::move(reads), {d});
  if (like) return g.contribute(x, d);
  Term term{.space = space};
  term.formula = term.operand(d, dense_view(space));
  emit_through(g, x, view, std::move(term));
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
          o.expect(c.batch.rank + 2 <= Shape::kMaxRank && c.m > 0 && c.n > 0 && c.k > 0 &&
                       c.batch.elements() > 0,
                   "sizes of products");
          const Shape a = matrices(c.batch, c.m, c.k), b = matrices(c.batch, c.n, c.k);
          o.expect(!c.a.bounded(a) && !c.b.bounded(b), "views of products have no bounds");
          o.expect(o.in(0).dtype == o.in(1).dtype, "both operands have the same dtype");
          o.values(o.in(0));
          o.values(o.out(0));
          o.expect(o.out(0).dtype == DType::f32 || o.out(0).dtype == o.in(0).dtype,
                   "a product has the operands' dtype, or f32");
          o.expect(0 <= c.summed && c.summed <= c.batch.rank &&
                       (c.summed == 0 || o.out(0).dtype == DType::f32),
                   "sums over a batch are f32");
          o.expect(o.out(0), batch_of_result(c).elements() * c.m * c.n, o.out(0).dtype);
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
          // The result is the same for all that is added.
          const View of_result = dense_view(matrices(batch_of_result(c), c.m, c.n));
          View d_y;
          std::copy_n(of_result.strides.begin(), Shape::kMaxRank - c.summed,
                      d_y.strides.begin() + c.summed);
          const BufferId d = g.of(op.writes[0]), a = op.reads[0], b = op.reads[1];
          if (g.needs(a))
            emit_contract_grad(g, a, c.a,
                               {.batch = c.batch,
                                .m = c.m,
                                .n = c.k,
                                .k = c.n,
                                .a = d_y,
                                .b = transposed(c.b, c.batch)},
                               {d, b});
          if (g.needs(b))
            emit_contract_grad(g, b, c.b,
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
