// x (R,C) = token[ids] + position[t]: the position table is optional. t is the row of the sample, or with documents of the
// document.
#pragma once

#include <algorithm>

#include "runtime/ir/ops/operands.h"

namespace dstrain::ops {

// Checks a table of positions.
inline void expect_positions(const Operands& o, const EmbedAttrs& attrs, const Buffer& table,
                             int64_t c, DType dtype) {
  o.expect(rows(table) >= attrs.seq_len && columns(table) == c && table.dtype == dtype,
           "too few positions");
}

// Checks which tokens a table of `rows` rows has.
inline void expect_tokens(const Operands& o, const EmbedAttrs& attrs, int64_t rows) {
  o.expect(0 <= attrs.tokens && attrs.tokens <= rows && attrs.first_token >= 0,
           "the table has fewer rows than tokens");
}

inline constexpr OpRule embed{
    .repeatable = true,
    .of_model = true,
    .attrs = kAttrs<EmbedAttrs>,
    .module = "Embedding",
    .looks_up = true,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(2, 4, 1, 1);
          const DType t = o.values(o.in(1));
          const int64_t r = o.in(0).shape.elements(), c = columns(o.in(1));
          const auto attrs = attrs_as<EmbedAttrs>(op.attrs);
          o.expect(o.in(0), r, DType::i32);
          o.expect(o.in(1), rows(o.in(1)) * c, t);
          expect_tokens(o, attrs, rows(o.in(1)));
          if (o.has_in(2)) {
            expect_positions(o, attrs, o.in(2), c, t);
            o.expect(attrs.tokens == 0, "positions are not added to a part of the tokens");
          }
          o.expect_samples(attrs.part, r, attrs.seq_len);
          o.expect(o.out(0), r * c, t);
          o.expect(!o.has_in(3) || o.has_in(2), "documents without positions");
          o.expect_documents(3, r);
        },
    .backward =
        [](const Instruction& op, Gradients& g) {
          const BufferId d_x = g.of(op.writes[0]);
          g.emit_weight(OpKind::embed_token_grad, op.attrs, {d_x, op.reads[0]}, {op.reads[1]});
          if (op.reads.size() <= 2) return;
          std::vector<BufferId> reads{d_x};
          if (op.reads.size() > 3) reads.push_back(op.reads[3]);
          g.emit_weight(OpKind::embed_position_grad, op.attrs, reads, {op.reads[2]});
        },
    .axes = axes_are<"row, class channel, position! channel, row -> row channel">,
};

// y = x + the table's row of each position. A table of one row is a bias: then a sample is one row.
inline constexpr OpRule add_rows{
    .repeatable = true,
    .of_model = true,
    .attrs = kAttrs<EmbedAttrs>,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(2, 3, 1, 1);
          const auto attrs = attrs_as<EmbedAttrs>(op.attrs);
          const DType t = o.values(o.in(0));
          const int64_t r = rows(o.in(0)), c = columns(o.in(0));
          o.expect(o.in(0), r * c, t);
          expect_positions(o, attrs, o.in(1), c, t);
          o.expect_samples(attrs.part, r, attrs.seq_len);
          o.expect(attrs.seq_len > 1 || rows(o.in(1)) == 1, "a bias has one row");
          o.expect_documents(2, r);
          o.expect(o.out(0), r * c, t);
          o.no_alias(0, 0);
        },
    .backward =
        [](const Instruction& op, Gradients& g) {
          const BufferId d_y = g.of(op.writes[0]);
          if (g.needs(op.reads[0])) g.contribute(op.reads[0], d_y);
          std::vector<BufferId> reads{d_y};
          reads.insert(reads.end(), op.reads.begin() + 2, op.reads.end());
          if (attrs_as<EmbedAttrs>(op.attrs).seq_len == 1)
            g.emit_weight(OpKind::sum_rows, {}, {d_y}, {op.reads[1]});
          else
            g.emit_weight(OpKind::embed_position_grad, op.attrs, reads, {op.reads[1]});
        },
    .axes = [](const Program&, const Instruction& op) -> OpAxes {
      if (attrs_as<EmbedAttrs>(op.attrs).seq_len == 1)
        return "row channel, - channel -> row channel";
      return "row channel, position! channel, row -> row channel";
    },
};

inline constexpr OpRule embed_token_grad{
    .attrs = kAttrs<EmbedAttrs>,
    .gradient_terms = GradientTerms::rows,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(2, 2, 1, 1);
          o.expect(o.in(0), o.in(1).shape.elements() * columns(o.out(0)), o.values(o.in(0)));
          o.expect(o.in(1).dtype == DType::i32, "ids are i32");
          o.expect(o.out(0).dtype == DType::f32, "weight gradients are f32");
          expect_tokens(o, attrs_as<EmbedAttrs>(op.attrs), rows(o.out(0)));
        },
    .axes = axes_are<"row channel, row -> class channel">,
};

inline constexpr OpRule embed_position_grad{
    .attrs = kAttrs<EmbedAttrs>,
    .gradient_terms = GradientTerms::rows,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 2, 1, 1);
          const int64_t c = columns(o.out(0));
          o.expect(o.in(0), rows(o.in(0)) * c, o.values(o.in(0)));
          o.expect_documents(1, rows(o.in(0)));
          // Positions that no sample has get zeros.
          const int64_t positions =
              std::max(rows(o.out(0)), attrs_as<EmbedAttrs>(op.attrs).seq_len);
          o.expect(o.out(0), positions * c, DType::f32);
        },
    .axes = axes_are<"row channel, row -> position channel">,
};

}  // namespace dstrain::ops
