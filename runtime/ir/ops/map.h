// y = formula(x0, x1, ...) for each element: any pointwise function (runtime/ir/formula/formula.h). Operands have the elements
// of the result, or are broadcast over its rows or columns; the first one has all.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "runtime/ir/formula/broadcast.h"
#include "runtime/ir/ops/operands.h"

namespace dstrain::ops {

// Emits the product of the result's gradient and the formula's derivative with respect to operand `i`, of all elements of the
// result, into `to`. It reads the operands that the derivative depends on.
inline void emit_map_slope(const Instruction& op, const Formula& slope, Gradients& g, BufferId to) {
  std::vector<BufferId> reads{g.of(op.writes[0])};
  std::array<int, Formula::kMostInputs> numbers{};
  for (size_t i = 0; i < op.reads.size(); ++i) {
    if (!slope.reads(static_cast<int>(i))) continue;
    numbers[i] = static_cast<int>(reads.size());
    reads.push_back(op.reads[i]);
  }
  g.emit(OpKind::map, MapAttrs{Formula::input(0) * slope.renumbered(numbers)}, std::move(reads),
         {to});
}

inline constexpr OpRule map{
    .repeatable = true,
    .of_model = true,
    .attrs = kAttrs<MapAttrs>,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, Formula::kMostInputs, 1, 1);
          const auto attrs = attrs_as<MapAttrs>(op.attrs);
          o.expect(attrs.formula.inputs() > 0 &&
                       attrs.formula.inputs() <= static_cast<int>(op.reads.size()),
                   "a formula reads operands that there are not");
          o.values(o.out(0));
          for (size_t i = 0; i < op.reads.size(); ++i) {
            o.values(o.in(i));
            const Broadcast way = broadcast_of(o.out(0).shape, o.in(i).shape);
            o.expect(way != Broadcast::impossible && (i > 0 || way == Broadcast::none),
                     "operands have the result's elements, or are broadcast over its rows or "
                     "columns; the first has all");
          }
          o.no_alias();
        },
    .backward =
        [](const Instruction& op, Gradients& g) {
          const auto attrs = attrs_as<MapAttrs>(op.attrs);
          const BufferId y = op.writes[0];
          for (size_t i = 0; i < op.reads.size(); ++i) {
            const BufferId x = op.reads[i];
            if (!g.needs(x)) continue;
            const auto slope = derivative(attrs.formula, static_cast<int>(i));
            if (!slope) continue;
            const Program& p = g.program();
            const Broadcast way = broadcast_of(p.at(y).shape, p.at(x).shape);
            const bool summed = way == Broadcast::columns && p.at(x).parameter >= 0;
            check(way == Broadcast::none || summed,
                  "map: {} is broadcast, and its gradient a sum that only a parameter with a value "
                  "for each column has",
                  p.at(x).name);
            const BufferId d_x = g.like(summed ? y : x);
            emit_map_slope(op, *slope, g, d_x);
            if (summed)
              g.emit_weight(OpKind::sum_rows, {}, {d_x}, {x});
            else
              g.contribute(x, d_x);
          }
        },
    .axes =
        [](const Program& p, const Instruction& op) {
          const Shape& result = p.at(op.writes[0]).shape;
          std::array<Broadcast, Formula::kMostInputs> ways{};
          bool by_column = false;
          for (size_t i = 0; i < op.reads.size(); ++i) {
            ways[i] = broadcast_of(result, p.at(op.reads[i]).shape);
            by_column = by_column || ways[i] == Broadcast::columns;
          }
          // Values of columns are parameters, which no rank has a part of.
          OpAxes axes = by_column ? axes_are<"row channel! -> row channel">(p, op)
                                  : axes_are<"row channel -> row channel">(p, op);
          for (size_t i = 1; i < op.reads.size(); ++i) {
            OperandAxes of_read;
            if (ways[i] == Broadcast::none) of_read = axes.read(0);
            if (ways[i] == Broadcast::columns)
              of_read = {.axes = {OperandAxis::channel}, .count = 1};
            if (ways[i] == Broadcast::rows) of_read = {.axes = {OperandAxis::row}, .count = 1};
            axes = axes.with_read(i, of_read);
          }
          return axes;
        },
};

}  // namespace dstrain::ops
