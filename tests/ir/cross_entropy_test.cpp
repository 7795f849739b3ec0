#include "tests/ir/one_op.h"

using namespace dstrain;
using Catch::Contains;

TEST_CASE("cross_entropy sums the loss in f64, and its gradient may overwrite the logits") {
  OneOp t(DType::bf16);
  const BufferId logits = t.run({10, 7});
  Instruction op{.op = OpKind::cross_entropy,
                 .reads = {logits, t.buffer({10}, DType::i32)},
                 .writes = {t.buffer({1}, DType::f64), t.run({10, 7})}};
  CHECK(t.refusal(op) == "");
  CHECK(t.refusal(with_write(op, 1, logits)) == "");
  CHECK_THAT(t.refusal(with_write(op, 1, t.buffer({10, 7}))), Contains("70 elements of bf16"));
  CHECK_THAT(t.refusal(with_write(op, 0, t.buffer({1}))), Contains("1 elements of f64"));
  CHECK_THAT(t.refusal(with_read(op, 1, t.buffer({7}, DType::i32))), Contains("10 elements"));
  CHECK_THAT(t.refusal(with_read(op, 1, t.buffer({10}))), Contains("10 elements of i32"));
  op.attrs = CrossEntropyAttrs{6};  // a column of padding
  CHECK(t.refusal(op) == "");
  op.attrs = CrossEntropyAttrs{8};
  CHECK_THAT(t.refusal(op), Contains("more classes than logits"));
  op.attrs = {};
  op.writes.pop_back();  // validation
  CHECK(t.refusal(op) == "");
}

TEST_CASE("cross_entropy has its gradient already") {
  OneOp t;
  const BufferId logits = t.parameter({10, 7});
  Instruction op{.op = OpKind::cross_entropy,
                 .reads = {logits, t.buffer({10}, DType::i32)},
                 .writes = {t.buffer({1}, DType::f64), logits}};
  Gradients g(t.program);
  rule_of(op.op).backward(op, g);
  CHECK(t.program.instructions.empty());
  CHECK(g.of(logits) == logits);
  op.writes.pop_back();
  CHECK_THROWS_WITH(rule_of(op.op).backward(op, g), Contains("without its gradient"));
}
