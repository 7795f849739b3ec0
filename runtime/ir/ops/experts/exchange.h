// Where an expert group divides the experts: rows go to the ranks that have the experts they chose, and come back. How many
// rows that are is known when the step runs; memory has room for all of all ranks. What arrives lies rank by rank, so no
// result depends on which rank has an expert: each row has its own, and a weight's gradient has a term for each rank.
#pragma once

#include "runtime/ir/ops/operands.h"

namespace dstrain::ops {

inline constexpr OpRule expert_ends{
    .attrs = kAttrs<ExpertEndsAttrs>,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 1, 2, 2);
          const auto a = attrs_as<ExpertEndsAttrs>(op.attrs);
          const int64_t all = o.in(0).shape.elements();
          o.expect(o.in(0), all, DType::i32);
          o.expect(a.ranks > 0 && a.rank >= 0 && a.rank < a.ranks && all % (a.ranks * a.ranks) == 0,
                   "ranks divide the experts evenly");
          o.expect(o.out(0), all / a.ranks, DType::i32);
          o.expect(o.out(1), a.ranks * a.ranks, DType::i32);
          o.no_alias();
        },
};

// Not repeated by recompute: rows travel once.
inline constexpr OpRule exchange_rows{
    .queue = Queue::comm,
    .done_by = DoneBy::collective,
    .attrs = kAttrs<ExchangeAttrs>,
    .collective = Collective::exchange_rows,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(2, 2, 1, 1);
          const bool back = attrs_as<ExchangeAttrs>(op.attrs).back;
          const Buffer &few = back ? o.out(0) : o.in(0), &many = back ? o.in(0) : o.out(0);
          o.expect(few.dtype == many.dtype && columns(few) == columns(many),
                   "rows keep their dtype and columns");
          const int64_t ranks = rows(many) / std::max<int64_t>(rows(few), 1);
          o.expect(rows(few) * ranks == rows(many), "there is room for the rows of each rank");
          o.expect(o.in(1), ranks * ranks, DType::i32);
          o.no_alias();
        },
    .backward =
        [](const Instruction& op, Gradients& g) {
          const BufferId x = op.reads[0];
          if (!g.needs(x)) return;
          const BufferId d_x = g.like(x);
          const ExchangeAttrs other{.back = !attrs_as<ExchangeAttrs>(op.attrs).back};
          g.emit(OpKind::exchange_rows, other, {g.of(op.writes[0]), op.reads[1]}, {d_x}).channel =
              op.channel;
          g.contribute(x, d_x);
        },
};

}  // namespace dstrain::ops
