#include "tests/ir/one_op.h"

using namespace dstrain;
using Catch::Contains;

namespace {

// Two samples of 5 tokens, 12 channels in 3 heads.
const AttentionAttrs kThreeHeads{.dropout = 0.1f, .site = 2, .heads = 3, .seq_len = 5};

Instruction attention_op(OneOp& t, BufferId qkv) {
  return {.op = OpKind::attention,
          .attrs = kThreeHeads,
          .reads = {qkv},
          .writes = {t.run({10, 12}), t.buffer({2, 3, 5})}};
}

}  // namespace

TEST_CASE("attention's channels divide into heads and its rows into samples") {
  OneOp t(DType::bf16);
  const Instruction op = attention_op(t, t.run({10, 36}));
  CHECK(t.refusal(op) == "");
  CHECK_THAT(t.refusal(with_attrs(op, AttentionAttrs{.heads = 5, .seq_len = 5})),
             Contains("into heads"));
  CHECK_THAT(t.refusal(with_attrs(op, {})), Contains("into heads"));
  CHECK_THAT(t.refusal(with_attrs(op, AttentionAttrs{.heads = 3, .seq_len = 4})),
             Contains("into samples"));
  CHECK_THAT(t.refusal(with_read(op, 0, t.run({10, 24}))), Contains("360 elements of bf16"));
  CHECK_THAT(t.refusal(with_write(op, 1, t.buffer({2, 5}))), Contains("30 elements of f32"));
  CHECK_THAT(t.refusal(with_write(op, 1, t.run({2, 3, 5}))), Contains("30 elements of f32"));
}

TEST_CASE("attention counts the causal half of two products, its gradient of five") {
  OneOp t;
  const Instruction op = attention_op(t, t.run({10, 36}));
  CHECK(cost_of(t.program, op).flops == 2.0 * 10 * 12 * 5);
  const Instruction grad{.op = OpKind::attention_grad,
                         .attrs = kThreeHeads,
                         .reads = {t.run({10, 12}), op.reads[0], op.writes[0], op.writes[1]},
                         .writes = {t.run({10, 36})}};
  CHECK(t.refusal(grad) == "");
  CHECK(cost_of(t.program, grad).flops == 5.0 * 10 * 12 * 5);
  CHECK_THAT(t.refusal(with_read(grad, 0, t.run({10, 36}))), Contains("120 elements"));
  CHECK_THAT(t.refusal(with_read(grad, 3, t.buffer({10}))), Contains("30 elements"));
  CHECK_THAT(t.refusal(with_write(grad, 0, t.run({10, 12}))), Contains("360 elements"));
  CHECK_THAT(t.refusal(with_write(grad, 0, op.reads[0])), Contains("overlaps"));
}

TEST_CASE("attention's backward reads what the forward pass wrote, with the same dropout") {
  OneOp t;
  const Instruction op = attention_op(t, t.parameter({10, 36}));
  CHECK(t.backward_ops(op) == std::vector<std::string>{"attention_grad"});
  const Instruction& grad = t.program.instructions[0];
  CHECK(grad.reads[1] == op.reads[0]);
  CHECK(grad.reads[2] == op.writes[0]);
  CHECK(grad.reads[3] == op.writes[1]);
  CHECK(grad.attrs == op.attrs);
  CHECK(t.backward_ops(attention_op(t, t.run({10, 36}))).empty());
}
