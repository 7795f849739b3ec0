#include "tests/ir/one_op.h"

using namespace dstrain;
using Catch::Contains;

namespace {

// Rows of 24 columns: 2 sections of 3 blocks, with `copies` copies of each.
ColumnsAttrs blocks(int64_t copies) {
  return {.parts = 3 * copies, .sections = 2, .copies = copies};
}

}  // namespace

TEST_CASE("split_columns and join_columns have whole rows on one side, and parts on the other") {
  for (const DType run : {DType::f32, DType::bf16}) {
    OneOp t(run);
    const Instruction split{.op = OpKind::split_columns,
                            .attrs = blocks(2),
                            .reads = {t.run({10, 24})},
                            .writes = {t.run({6, 10, 8})}};
    const Instruction join{.op = OpKind::join_columns,
                           .attrs = blocks(2),
                           .reads = {t.run({6, 10, 8})},
                           .writes = {t.run({10, 24})}};
    CHECK(name_of(split.op) == "split_columns");
    CHECK(name_of(join.op) == "join_columns");
    for (const Instruction& op : {split, join}) {
      CHECK(t.refusal(op) == "");
      CHECK_THAT(t.refusal(with_attrs(op, ColumnsAttrs{.parts = 6, .copies = 4})),
                 Contains("divide into copies"));
      CHECK_THAT(t.refusal(with_attrs(op, ColumnsAttrs{.parts = 0})),
                 Contains("divide into copies"));
      CHECK_THAT(t.refusal(with_attrs(op, ColumnsAttrs{.parts = 6, .copies = 0})),
                 Contains("divide into copies"));
      CHECK_THAT(t.refusal(with_attrs(op, ColumnsAttrs{.parts = 6, .sections = 5, .copies = 2})),
                 Contains("sections of equal blocks"));
      CHECK_THAT(t.refusal(with_attrs(op, ColumnsAttrs{.parts = 6, .sections = 0, .copies = 2})),
                 Contains("sections of equal blocks"));
      CHECK_THAT(t.refusal(with_attrs(op, kRelu)), Contains("attributes of another op"));
      CHECK(rule_of(op.op).repeatable);
      CHECK(cost_of(t.program, op).flops == 0);
    }
    CHECK_THAT(t.refusal(with_write(split, 0, t.run({10, 24}))), Contains("480 elements"));
    CHECK_THAT(t.refusal(with_write(split, 0, t.buffer({6, 10, 8}, DType::f16))),
               Contains("480 elements"));
    CHECK_THAT(t.refusal(with_read(join, 0, t.run({10, 24}))), Contains("480 elements"));
  }
}

TEST_CASE("split_columns and join_columns overwrite nothing that they read") {
  OneOp t;
  const BufferId x = t.run({10, 24});
  for (const OpKind op : {OpKind::split_columns, OpKind::join_columns})
    CHECK_THAT(t.refusal({.op = op, .attrs = blocks(1), .reads = {x}, .writes = {x}}),
               Contains("overlaps"));
}

TEST_CASE(
    "the gradient of split columns is joined, copies added, and that of joined ones split and "
    "copied") {
  for (const int64_t copies : {1, 2}) {
    OneOp t;
    const Instruction split{.op = OpKind::split_columns,
                            .attrs = blocks(copies),
                            .reads = {t.parameter({10, 24})},
                            .writes = {t.run({3 * copies, 10, 8})}};
    CHECK(t.backward_ops(split) == std::vector<std::string>{"join_columns"});
    CHECK(t.program.instructions[0].attrs == split.attrs);
    CHECK(t.backward_ops(with_read(split, 0, t.run({10, 24}))).empty());
  }
  for (const int64_t copies : {1, 2}) {
    OneOp t;
    const Instruction join{.op = OpKind::join_columns,
                           .attrs = blocks(copies),
                           .reads = {t.parameter({3 * copies, 10, 8})},
                           .writes = {t.run({10, 24})}};
    CHECK(t.backward_ops(join) == std::vector<std::string>{"split_columns"});
    CHECK(t.program.instructions[0].attrs == join.attrs);
    CHECK(t.program.at(t.program.instructions[0].writes[0]).shape == Shape{3 * copies, 10, 8});
    CHECK(t.backward_ops(with_read(join, 0, t.run({3 * copies, 10, 8}))).empty());
  }
}
