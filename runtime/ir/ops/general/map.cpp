#include "runtime/ir/ops/general/map.h"

#include <utility>

namespace dstrain::ops {
void emit_by_row(Gradients& g, const Instruction& op, size_t i, Term term) {
  const Program& p = g.program();
  const BufferId x = op.reads[i], y = op.writes[0];
  const bool parameter = p.at(x).parameter >= 0;
  const Broadcast way = broadcast_of(p.at(y).shape, p.at(x).shape);
  if (parameter && way == Broadcast::columns) {
    const BufferId d_x = g.like(y);
    g.emit(OpKind::map, MapAttrs{term.formula}, std::move(term.reads), {d_x});
    return g.emit_weight(OpKind::sum_rows, {}, {d_x}, {x});
  }
  if (parameter || way != Broadcast::none) {
    const View view = view_by_row(way, term.space);
    return emit_through(g, x, view, std::move(term));
  }
  const BufferId d_x = g.like(x);
  g.emit(OpKind::map, MapAttrs{term.formula}, std::move(term.reads), {d_x});
  g.contribute(x, d_x);
}

}  // namespace dstrain::ops
