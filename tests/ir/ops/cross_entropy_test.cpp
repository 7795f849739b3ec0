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

TEST_CASE("log_probs has a value of each row, and its gradient may overwrite the logits") {
  OneOp t(DType::bf16);
  const BufferId logits = t.parameter({10, 7});
  Instruction op{.op = OpKind::log_probs,
                 .attrs = LogProbsAttrs{.classes = 6},
                 .reads = {logits, t.buffer({10}, DType::i32)},
                 .writes = {t.buffer({10})}};
  CHECK(t.refusal(op) == "");
  CHECK_THAT(t.refusal(with_read(op, 1, t.buffer({7}, DType::i32))), Contains("10 elements"));
  CHECK_THAT(t.refusal(with_write(op, 0, t.run({10}))), Contains("10 elements of f32"));
  CHECK_THAT(t.refusal(with_attrs(op, LogProbsAttrs{8})), Contains("more classes than logits"));
  CHECK(t.backward_ops(op) == std::vector<std::string>{"log_probs_grad"});
  const Instruction beside{.op = OpKind::log_probs_grad,
                           .attrs = LogProbsAttrs{.classes = 6},
                           .reads = {t.buffer({10}), logits, t.buffer({10}, DType::i32)},
                           .writes = {t.run({10, 7})}};
  CHECK(t.refusal(beside) == "");
  CHECK(t.refusal(with_write(beside, 0, logits)) == "");
  CHECK_THAT(t.refusal(with_read(beside, 0, t.run({10}))), Contains("10 elements of f32"));
  CHECK_THAT(t.refusal(with_write(beside, 0, t.buffer({10, 7}))), Contains("70 elements of bf16"));
}

TEST_CASE("log_probs has a value of each of several targets of a row") {
  OneOp t(DType::bf16);
  const BufferId logits = t.parameter({10, 7});
  const Instruction op{.op = OpKind::log_probs,
                       .attrs = LogProbsAttrs{.classes = 6},
                       .reads = {logits, t.buffer({2, 5, 3}, DType::i32)},
                       .writes = {t.buffer({10, 3})}};
  CHECK(t.refusal(op) == "");
  CHECK_THAT(t.refusal(with_write(op, 0, t.buffer({10}))), Contains("30 elements of f32"));
  CHECK_THAT(t.refusal(with_read(op, 1, t.buffer({10, 1025}, DType::i32))),
             Contains("more targets of a row than 1024"));
  const OpAxes axes = axes_of(t.program, op);
  CHECK(axes.along(OperandAxis::channel) == Along::mapped);
  CHECK(axes.along(OperandAxis::classes) == Along::contracted);
  CHECK(t.backward_ops(op) == std::vector<std::string>{"log_probs_grad"});
}

TEST_CASE("class_sums has three sums of each row of some classes") {
  OneOp t(DType::bf16);
  const Instruction op{.op = OpKind::class_sums,
                       .attrs = CrossEntropyAttrs{.classes = 6, .first_class = 12},
                       .reads = {t.run({10, 7}), t.buffer({10}, DType::i32)},
                       .writes = {t.buffer({10, 3})}};
  CHECK(t.refusal(op) == "");
  CHECK_THAT(t.refusal(with_read(op, 0, t.buffer({10, 7}, DType::i32))),
             Contains("values of f32, bf16 or f16"));
  CHECK_THAT(t.refusal(with_read(op, 1, t.buffer({7}, DType::i32))), Contains("10 elements"));
  CHECK_THAT(t.refusal(with_write(op, 0, t.buffer({10}))), Contains("30 elements of f32"));
  CHECK_THAT(t.refusal(with_write(op, 0, t.run({10, 3}))), Contains("30 elements of f32"));
  CHECK_THAT(t.refusal(with_attrs(op, CrossEntropyAttrs{8})), Contains("more classes than logits"));
  CHECK_THAT(t.refusal(with_attrs(op, CrossEntropyAttrs{.first_class = -1})),
             Contains("more classes than logits"));
}

TEST_CASE("smoothing needs a fourth sum of each row, and the number of all classes") {
  OneOp t(DType::bf16);
  const CrossEntropyAttrs smoothed{
      .classes = 6, .first_class = 12, .smoothing = 0.1f, .all_classes = 18};
  const BufferId logits = t.run({10, 7}), targets = t.buffer({10}, DType::i32);
  const Instruction sums{.op = OpKind::class_sums,
                         .attrs = smoothed,
                         .reads = {logits, targets},
                         .writes = {t.buffer({10, 4})}};
  CHECK(t.refusal(sums) == "");
  CHECK_THAT(t.refusal(with_write(sums, 0, t.buffer({10, 3}))), Contains("40 elements of f32"));
  const Instruction part{.op = OpKind::cross_entropy_part,
                         .attrs = smoothed,
                         .reads = {logits, targets, t.buffer({3, 10, 4})},
                         .writes = {t.buffer({1}, DType::f64), t.run({10, 7})}};
  CHECK(t.refusal(part) == "");
  CHECK_THAT(t.refusal(with_read(part, 2, t.buffer({3, 10, 3}))), Contains("with smoothing four"));
  CrossEntropyAttrs few = smoothed;
  few.all_classes = 17;
  CHECK_THAT(t.refusal(with_attrs(part, few)), Contains("needs their number"));
}

TEST_CASE("cross_entropy_part reads the sums of all parts, and may overwrite the logits") {
  OneOp t(DType::bf16);
  const BufferId logits = t.run({10, 7});
  Instruction op{.op = OpKind::cross_entropy_part,
                 .attrs = CrossEntropyAttrs{.classes = 6, .first_class = 12},
                 .reads = {logits, t.buffer({10}, DType::i32), t.buffer({3, 10, 3})},
                 .writes = {t.buffer({1}, DType::f64), t.run({10, 7})}};
  CHECK(t.refusal(op) == "");
  CHECK(t.refusal(with_write(op, 1, logits)) == "");
  CHECK_THAT(t.refusal(with_read(op, 2, t.buffer({10, 4}))), Contains("three sums a row"));
  CHECK_THAT(t.refusal(with_read(op, 2, t.run({3, 10, 3}))), Contains("three sums a row"));
  CHECK_THAT(t.refusal(with_read(op, 1, t.buffer({10}))), Contains("10 elements of i32"));
  CHECK_THAT(t.refusal(with_write(op, 0, t.buffer({1}))), Contains("1 elements of f64"));
  CHECK_THAT(t.refusal(with_write(op, 1, t.buffer({10, 7}))), Contains("70 elements of bf16"));
  CHECK_THAT(t.refusal(with_attrs(op, CrossEntropyAttrs{8})), Contains("more classes than logits"));
  op.writes.pop_back();  // validation
  CHECK(t.refusal(op) == "");
}

TEST_CASE("cross_entropy_part writes a loss for each row, or adds those of other rows") {
  OneOp t;
  Instruction op{.op = OpKind::cross_entropy_part,
                 .attrs = CrossEntropyAttrs{.by_row = true},
                 .reads = {t.run({10, 7}), t.buffer({10}, DType::i32), t.buffer({2, 10, 3})},
                 .writes = {t.buffer({10}, DType::f64)}};
  CHECK(t.refusal(op) == "");
  CHECK_THAT(t.refusal(with_attrs(op, CrossEntropyAttrs{})), Contains("1 elements of f64"));
  op.reads.push_back(t.buffer({4}, DType::f64));
  CHECK_THAT(t.refusal(op), Contains("losses of rows are not added to others"));
  op.attrs = CrossEntropyAttrs{};
  op.writes[0] = t.buffer({1}, DType::f64);
  CHECK(t.refusal(op) == "");
  CHECK_THAT(t.refusal(with_read(op, 3, t.buffer({4}))), Contains("4 elements of f64"));
}

TEST_CASE("cross_entropy_part has its gradient already") {
  OneOp t;
  const BufferId logits = t.parameter({10, 7});
  Instruction op{.op = OpKind::cross_entropy_part,
                 .reads = {logits, t.buffer({10}, DType::i32), t.buffer({2, 10, 3})},
                 .writes = {t.buffer({1}, DType::f64), logits}};
  Gradients g(t.program);
  rule_of(op.op).backward(op, g);
  CHECK(t.program.instructions.empty());
  CHECK(g.of(logits) == logits);
  op.writes.pop_back();
  CHECK_THROWS_WITH(rule_of(op.op).backward(op, g), Contains("without its gradient"));
}
