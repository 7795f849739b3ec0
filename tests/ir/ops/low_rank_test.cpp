#include "tests/ir/one_op.h"

using namespace dstrain;
using Catch::Contains;

TEST_CASE("projections of a matrix go with factors of its rows and its columns") {
  OneOp t(DType::bf16);
  const BufferId m = t.buffer({5, 7}), p = t.buffer({2, 5}), b = t.buffer({2, 7});
  const Instruction rows{.op = OpKind::project_rows, .reads = {m, b}, .writes = {p}};
  const Instruction columns{.op = OpKind::project_columns, .reads = {m, p}, .writes = {b}};
  for (const Instruction& op : {rows, columns}) {
    CHECK(t.refusal(op) == "");
    CHECK(cost_of(t.program, op).flops == 2 * 2 * 5 * 7);
    CHECK_THAT(t.refusal(with_read(op, 0, t.buffer({35}))), Contains("two dimensions"));
    CHECK_THAT(t.refusal(with_read(op, 0, t.run({5, 7}))), Contains("35 elements of f32"));
    CHECK_THAT(t.refusal(with_read(op, 1, t.buffer({3, 6}))), Contains("elements of f32"));
    CHECK_THAT(t.refusal(with_write(op, 0, t.buffer({4, 6}))), Contains("elements of f32"));
  }
}

TEST_CASE("expand_factors updates the matrix in place, and may give the error") {
  OneOp t;
  const BufferId p = t.buffer({2, 5}), b = t.buffer({2, 7}), m = t.buffer({5, 7});
  const Instruction op{.op = OpKind::expand_factors,
                       .attrs = ExpandAttrs{.ranks = 4},
                       .reads = {p, b, m},
                       .writes = {m}};
  CHECK(t.refusal(op) == "");
  CHECK(cost_of(t.program, op).flops == 2 * 2 * 5 * 7);
  Instruction with_error = op;
  with_error.writes.push_back(t.buffer({5, 7}));
  CHECK(t.refusal(with_error) == "");
  CHECK_THAT(t.refusal(with_write(with_error, 1, t.buffer({5, 6}))), Contains("35 elements"));
  CHECK_THAT(t.refusal(with_write(op, 0, t.buffer({5, 7}))), Contains("in place"));
  CHECK_THAT(t.refusal(with_attrs(op, ExpandAttrs{.ranks = 0})), Contains("there are ranks"));
}

TEST_CASE("gram_schmidt works on rows of f32 in place") {
  OneOp t;
  const BufferId x = t.buffer({2, 5});
  const Instruction op{.op = OpKind::gram_schmidt, .reads = {x}, .writes = {x}};
  CHECK(t.refusal(op) == "");
  CHECK_THAT(t.refusal(with_write(op, 0, t.buffer({2, 5}))), Contains("in place"));
  const BufferId flat = t.buffer({10});
  CHECK_THAT(t.refusal(with_write(with_read(op, 0, flat), 0, flat)), Contains("rows of f32"));
}

TEST_CASE("state and errors are f32 of equally many elements") {
  OneOp t(DType::bf16);
  for (const OpKind kind : {OpKind::add_error, OpKind::commit_state}) {
    const Instruction op{.op = kind, .reads = {t.buffer({12})}, .writes = {t.buffer({3, 4})}};
    CHECK(t.refusal(op) == "");
    CHECK_THAT(t.refusal(with_read(op, 0, t.buffer({11}))), Contains("12 elements of f32"));
    CHECK_THAT(t.refusal(with_write(op, 0, t.run({12}))), Contains("f32"));
    CHECK_THAT(t.refusal(with_write(op, 0, op.reads[0])), Contains("overlaps"));
  }
}

TEST_CASE("random factors are f32, and a mean has a positive divisor") {
  OneOp t(DType::bf16);
  Instruction op{.op = OpKind::random_factor, .reads = {}, .writes = {t.buffer({2, 5})}};
  CHECK(t.refusal(op) == "");
  CHECK_THAT(t.refusal(with_write(op, 0, t.run({2, 5}))), Contains("f32"));
  op = {.op = OpKind::commit_state, .reads = {t.buffer({12})}, .writes = {t.buffer({12})}};
  op.attrs = CommitAttrs{.divisor = 0};
  CHECK_THAT(t.refusal(op), Contains("positive"));
}
