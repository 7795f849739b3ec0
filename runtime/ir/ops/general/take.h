// take: y[i] = the element of table x that index i of the space names, through the operands of indices: gather,
// index_select, rows of an embedding. put: x = 0, then x[the element that i names] += y[i], in the order of the indices:
// scatter_add, index_add. An index that is outside of its dimension takes NaN, of integers the smallest, and puts nothing. Each is the gradient of
// the other.
#pragma once

#include "runtime/ir/ops/general/slopes.h"

namespace dstrain::ops {

inline constexpr size_t kMostIndices = 4;

// Checks the table and the operands of indices.
inline void expect_table(const Operands& o, const Buffer& table, const TakeAttrs& attrs,
                         const Instruction& op) {
  o.expect(!attrs.indices.empty() && attrs.indices.size() <= kMostIndices &&
               op.reads.size() == attrs.indices.size() + 1,
           "1 to 4 operands of indices");
  o.expect(attrs.space.elements() > 0, "an index space has at least one index");
  o.expect(!attrs.table.bounded(attrs.space), "the view of a table has no bounds");
  auto range = elements_read(attrs.table, attrs.space);
  int64_t further = 0;
  for (size_t i = 0; i < attrs.indices.size(); ++i) {
    const TakeAttrs::Indices& of = attrs.indices[i];
    o.expect(of.size > 0 && of.stride > 0, "a dimension that indices are of");
    further += (of.size - 1) * of.stride;
    o.expect(o.in(i + 1), o.in(i + 1).shape.elements(), DType::i32);
    o.expect(!of.view.bounded(attrs.space), "the view of indices has no bounds");
    expect_inside(o, i + 1, of.view, attrs.space);
  }
  o.expect(!range || (range->first >= 0 && range->last + further < table.shape.elements()),
           "a table has fewer elements than indices may name");
}

inline constexpr OpRule take{
    .repeatable = true,
    .of_model = true,
    .walks_space = true,
    .attrs = kAttrs<TakeAttrs>,
    .looks_up = true,
    .sums = {.count = 1},
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(2, kMostIndices + 1, 1, 1);
          const auto attrs = attrs_as<TakeAttrs>(op.attrs);
          expect_table(o, o.in(0), attrs, op);
          const bool integers = o.in(0).dtype == DType::i32;
          if (!integers) {
            o.values(o.in(0));
            o.values(o.out(0));
          }
          o.expect(o.out(0), attrs.space.elements(), integers ? DType::i32 : o.out(0).dtype);
          o.no_alias();
        },
    .backward = [](const Instruction& op, Gradients& g) { emit_transpose(op, OpKind::put, g); },
};

inline constexpr OpRule put{
    .repeatable = true,
    .of_model = true,
    .walks_space = true,
    .attrs = kAttrs<TakeAttrs>,
    .sums = {.count = 1},
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(2, kMostIndices + 1, 1, 1);
          const auto attrs = attrs_as<TakeAttrs>(op.attrs);
          expect_table(o, o.out(0), attrs, op);
          o.values(o.out(0));
          o.values(o.in(0));
          o.expect(o.in(0), attrs.space.elements(), o.in(0).dtype);
          o.no_alias();
        },
    .backward = [](const Instruction& op, Gradients& g) { emit_transpose(op, OpKind::take, g); },
};

}  // namespace dstrain::ops
