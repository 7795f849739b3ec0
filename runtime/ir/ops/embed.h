// x (R,C) = token[ids] + position[t]: the position table is optional. t is the row of the sample, or with documents of the
// document.
#pragma once

#include <algorithm>

#include "runtime/ir/ops/operands.h"

namespace dstrain::ops {

inline constexpr OpRule embed{
    .repeatable = true,
    .of_model = true,
    .attrs = kAttrs<EmbedAttrs>,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(2, 4, 1, 1);
          const DType t = o.values(o.in(1));
          const int64_t r = o.in(0).shape.elements(), c = columns(o.in(1));
          const int64_t seq_len = attrs_as<EmbedAttrs>(op.attrs).seq_len;
          o.expect(o.in(0), r, DType::i32);
          o.expect(o.in(1), rows(o.in(1)) * c, t);
          if (o.has_in(2))
            o.expect(rows(o.in(2)) >= seq_len && columns(o.in(2)) == c && o.in(2).dtype == t,
                     "too few positions");
          o.expect(seq_len > 0 && r % seq_len == 0, "rows must divide into samples");
          o.expect(o.out(0), r * c, t);
          o.expect(!o.has_in(3) || o.has_in(2), "documents without positions");
          o.expect_documents(3, r);
        },
    .backward =
        [](const Instruction& op, Gradients& g) {
          const BufferId d_x = g.of(op.writes[0]);
          g.emit_weight(OpKind::embed_token_grad, {}, {d_x, op.reads[0]}, {op.reads[1]});
          if (op.reads.size() <= 2) return;
          std::vector<BufferId> reads{d_x};
          if (op.reads.size() > 3) reads.push_back(op.reads[3]);
          g.emit_weight(OpKind::embed_position_grad, op.attrs, reads, {op.reads[2]});
        },
};

inline constexpr OpRule embed_token_grad{
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(2, 2, 1, 1);
          o.expect(o.in(0), o.in(1).shape.elements() * columns(o.out(0)), o.values(o.in(0)));
          o.expect(o.in(1).dtype == DType::i32, "ids are i32");
          o.expect(o.out(0).dtype == DType::f32, "weight gradients are f32");
        },
};

inline constexpr OpRule embed_position_grad{
    .attrs = kAttrs<EmbedAttrs>,
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
};

}  // namespace dstrain::ops
