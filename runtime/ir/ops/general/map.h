// y = formula(x0, x1, ...) at each index of a space: any pointwise function (runtime/ir/formula/formula.h). Operands are
// read through views, and the result may be integers then, which lose what is behind the point; or operands have the elements of the result, or are broadcast over its rows or columns, and the first one
// has all.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "runtime/ir/ops/general/slopes.h"
#include "runtime/ir/views/broadcast.h"

namespace dstrain::ops {

// Emits the gradient of operand `i` of a map without views, as ops with rows and columns.
void emit_by_row(Gradients& g, const Instruction& op, size_t i, Term term);

inline constexpr OpRule map{
    .repeatable = true,
    .of_model = true,
    .attrs = kAttrs<MapAttrs>,
    .sums = {.count = 1},
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, Formula::kMostInputs, 1, 1);
          const auto attrs = attrs_as<MapAttrs>(op.attrs);
          o.expect(attrs.formula.inputs() > 0 &&
                       attrs.formula.inputs() <= static_cast<int>(op.reads.size()),
                   "a formula reads operands that there are not");
          const bool integers = o.out(0).dtype == DType::i32 && !attrs.views.empty();
          if (!integers) o.values(o.out(0));
          o.no_alias();
          if (!attrs.views.empty()) {
            o.expect(o.out(0), attrs.space.elements(), o.out(0).dtype);
            return expect_walk(o, attrs.space, attrs.views, op.reads.size());
          }
          o.expect(o.out(0).shape.elements() > 0, "a result has at least one element");
          for (size_t i = 0; i < op.reads.size(); ++i) {
            o.values(o.in(i));
            const Broadcast way = broadcast_of(o.out(0).shape, o.in(i).shape);
            o.expect(way != Broadcast::impossible && (i > 0 || way == Broadcast::none),
                     "operands have the result's elements, or are broadcast over its rows or "
                     "columns; the first has all");
          }
        },
    .backward =
        [](const Instruction& op, Gradients& g) {
          const auto attrs = attrs_as<MapAttrs>(op.attrs);
          std::vector<Shape> shapes;
          for (const BufferId id : op.reads) shapes.push_back(g.program().at(id).shape);
          const MapWalk walk = walk_of(g.program().at(op.writes[0]).shape, shapes, attrs);
          for (size_t i = 0; i < op.reads.size(); ++i) {
            if (!g.needs(op.reads[i])) continue;
            const auto slope = derivative(attrs.formula, static_cast<int>(i));
            if (!slope) continue;
            Term term{.space = walk.space};
            const Formula d = term.operand(g.of(op.writes[0]), dense_view(walk.space));
            term.formula = d * term.formula_of(*slope, op.reads, walk.views);
            if (attrs.views.empty())
              emit_by_row(g, op, i, std::move(term));
            else
              emit_through(g, op.reads[i], walk.views[i], std::move(term));
          }
        },
    .axes =
        [](const Program& p, const Instruction& op) {
          if (!attrs_as<MapAttrs>(op.attrs).views.empty()) return OpAxes{};
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
