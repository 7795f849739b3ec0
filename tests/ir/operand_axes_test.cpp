// What rules say of the axes of their operands.
#include "runtime/ir/operand_axes.h"

#include "tests/ir/one_op.h"

using namespace dstrain;

namespace {

using A = OperandAxis;

}  // namespace

TEST_CASE(
    "operand axes: a text names the axes of each operand, and so what an op does along them") {
  constexpr OpAxes product("row channel, feature channel, feature, - -> row feature");
  CHECK(product.read(0).is(A::row, A::channel));
  CHECK(product.read(1).is(A::feature, A::channel));
  CHECK(product.read(2).count == 1);
  CHECK(product.read(3).count == 0);
  CHECK(product.read(6).count == 0);
  CHECK(product.along(A::row) == Along::mapped);
  CHECK(product.along(A::channel) == Along::contracted);
  CHECK(product.along(A::feature) == Along::mapped);
  CHECK(product.along(A::head) == Along::absent);
  CHECK(is_product(product));
  CHECK_FALSE(maps_elements(product));
}

TEST_CASE(
    "operand axes: a result without an axis is a sum over it, and an axis may be needed whole") {
  constexpr OpAxes loss("row class, row -> -, row class");
  CHECK(loss.along(A::row) == Along::contracted);
  CHECK(loss.along(A::classes) == Along::contracted);
  constexpr OpAxes norm("row channel!, channel -> row channel, row");
  CHECK(norm.along(A::channel) == Along::whole);
  CHECK_FALSE(maps_elements(norm));
  constexpr OpAxes table("row channel, row -> class channel");
  CHECK(table.along(A::classes) == Along::made);
}

TEST_CASE("operand axes: sections and the number of an axis's indices belong to one operand") {
  constexpr OpAxes heads("row! head*3 -> row head, sample head position");
  CHECK(heads.read(0).sections == 3);
  CHECK(heads.write(0).sections == 1);
  CHECK(heads.write(1).has(A::head));
  CHECK_FALSE(heads.write(1).has_columns());
  CHECK(heads.with_indices(0, 4).read(0).indices == 4);
  CHECK(heads.with_indices(0, 4).write(0).indices == 0);
}

TEST_CASE(
    "operand axes: every op of a forward pass, and all that its gradient is made of, says them") {
  for (int i = 0; i < kOpKinds; ++i) {
    const OpRule& rule = rule_of(static_cast<OpKind>(i));
    CAPTURE(rule.name);
    if (rule.of_model || rule.gradient_terms == GradientTerms::rows || sums_pieces(rule.kind))
      CHECK((rule.axes != nullptr || rule.walks_space));
    if (rule.in_parts) {
      CHECK(rule_of(rule.in_parts->own).attrs == rule.attrs);
      CHECK(rule_of(rule.in_parts->all).attrs == rule.attrs);
    }
  }
}

TEST_CASE(
    "operand axes: what an op does along its columns follows from its attributes and shapes") {
  OneOp one;
  const BufferId x = one.run({4, 12}), y = one.run({4, 12}), h = one.run({4, 12});
  const BufferId whole = one.parameter({12}), head = one.parameter({4});
  const BufferId rstd = one.buffer({4}), rstds = one.buffer({4, 3});
  const auto along = [&](const Instruction& op, A axis) {
    return axes_of(one.program, op).along(axis);
  };
  Instruction op{.op = OpKind::rms_norm, .reads = {x, whole}, .writes = {y, rstd}};
  CHECK(along(op, A::channel) == Along::whole);
  op.reads[1] = head;
  op.writes[1] = rstds;
  CHECK(along(op, A::head) == Along::mapped);

  Instruction sum{.op = OpKind::add_dropout,
                  .attrs = DropoutAttrs{.seq_len = 4},
                  .reads = {x, h},
                  .writes = {y}};
  CHECK(along(sum, A::channel) == Along::mapped);
  CHECK(maps_elements(axes_of(one.program, sum)));
  sum.attrs = DropoutAttrs{.dropout = 0.5F, .seq_len = 4};
  CHECK(along(sum, A::channel) == Along::whole);

  const BufferId keys = one.run({4, 6}), lse = one.buffer({1, 4, 4});
  const Instruction attention{.op = OpKind::attention,
                              .attrs = AttentionAttrs{.heads = 4, .seq_len = 4, .kv_heads = 2},
                              .reads = {x, keys, keys},
                              .writes = {y, lse}};
  const OpAxes axes = axes_of(one.program, attention);
  CHECK(axes.along(A::row) == Along::whole);
  CHECK(axes.along(A::head) == Along::mapped);
  CHECK(axes.read(1).indices == 2);
  CHECK(axes.read(2).indices == 2);
}

TEST_CASE("operand axes: the rows of operands are read and set where attributes have them") {
  OpAttrs dropout = DropoutAttrs{.seq_len = 4}, norm = AddLayerNormAttrs{},
          packed = Int4Attrs{.part = 8};
  for (OpAttrs* const attrs : {&dropout, &norm}) {
    set_part(*attrs, {8, 16});
    CHECK(part_of(*attrs) == RowsPart{8, 16});
  }
  set_part(packed, {8, 16});
  CHECK(std::get<Int4Attrs>(packed).part == 8);
  CHECK_FALSE(part_of(packed));
  CHECK_FALSE(part_of(OpAttrs{}));
}

TEST_CASE("operand axes: lines are whole, and where they are rows their rows are mapped") {
  OneOp one;
  const BufferId x = one.run({4, 12}), y = one.run({4, 12});
  const BufferId order = one.buffer({4, 3}, DType::i32);
  const auto axes = [&](const OpAttrs& attrs, OpKind kind, BufferId result) {
    return axes_of(one.program, {.op = kind, .attrs = attrs, .reads = {x}, .writes = {result}});
  };
  for (const OpAxes& rows : {axes(ScanAttrs{.lines = {12, 1}}, OpKind::scan, y),
                             axes(SortAttrs{.lines = {12, 1}, .kept = 3}, OpKind::sort, order)}) {
    CHECK(rows.along(A::row) == Along::mapped);
    CHECK(rows.along(A::channel) == Along::whole);
  }
  CHECK_FALSE(axes(ScanAttrs{.lines = {4, 12}}, OpKind::scan, y).any());
  CHECK_FALSE(axes(ScanAttrs{.lines = {6, 1}}, OpKind::scan, y).any());
}
