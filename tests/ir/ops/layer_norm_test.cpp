#include "tests/ir/one_op.h"

using namespace dstrain;
using Catch::Contains;

TEST_CASE("layer_norm writes y and f32 statistics of every row") {
  OneOp t(DType::bf16);
  const Instruction op{.op = OpKind::layer_norm,
                       .attrs = LayerNormAttrs{1e-6f},
                       .reads = {t.run({10, 6}), t.run({6}), t.run({6})},
                       .writes = {t.run({10, 6}), t.buffer({10}), t.buffer({10})}};
  CHECK(t.refusal(op) == "");
  CHECK_THAT(t.refusal(with_read(op, 1, t.run({10}))), Contains("6 elements of bf16"));
  CHECK_THAT(t.refusal(with_read(op, 2, kNone)), Contains("input 2 is absent"));
  CHECK_THAT(t.refusal(with_read(op, 2, t.buffer({6}))), Contains("6 elements of bf16"));
  CHECK_THAT(t.refusal(with_write(op, 0, t.run({5, 6}))), Contains("60 elements of bf16"));
  CHECK_THAT(t.refusal(with_write(op, 0, op.reads[0])), Contains("overlaps"));
  CHECK_THAT(t.refusal(with_write(op, 1, t.run({10}))), Contains("10 elements of f32"));
  CHECK_THAT(t.refusal(with_write(op, 2, t.buffer({6}))), Contains("10 elements of f32"));
}

TEST_CASE("an op's values have one floating dtype, which need not be the run's") {
  OneOp t(DType::bf16);
  const Instruction op{.op = OpKind::layer_norm,
                       .reads = {t.buffer({10, 6}), t.buffer({6}), t.buffer({6})},
                       .writes = {t.buffer({10, 6}), t.buffer({10}), t.buffer({10})}};
  CHECK(t.refusal(op) == "");
  CHECK_THAT(t.refusal(with_read(op, 1, t.run({6}))), Contains("6 elements of f32"));
  CHECK_THAT(t.refusal(with_read(op, 0, t.buffer({10, 6}, DType::i32))),
             Contains("must have values of f32, bf16 or f16"));
}

TEST_CASE("layer_norm's backward takes along the gradient that its input already has") {
  OneOp t;
  const BufferId x = t.parameter({10, 6});
  const Instruction op{.op = OpKind::layer_norm,
                       .reads = {x, t.parameter({6}), t.parameter({6})},
                       .writes = {t.run({10, 6}), t.buffer({10}), t.buffer({10})}};
  CHECK(t.backward_ops(op) ==
        std::vector<std::string>{"layer_norm_input_grad", "layer_norm_weight_grad"});
  CHECK(t.program.instructions[0].reads[5] == kNone);

  Gradients g(t.program);
  const BufferId before = g.like(x);
  g.contribute(x, before);
  g.contribute(op.writes[0], g.like(op.writes[0]));
  t.program.instructions.clear();
  rule_of(op.op).backward(op, g);
  REQUIRE(t.program.instructions.size() == 2);
  CHECK(t.program.instructions[0].reads[5] == before);
  CHECK(g.of(x) == t.program.instructions[0].writes[0]);
}

TEST_CASE("layer_norm of what needs no gradient has gradients of its weights only") {
  OneOp t;
  const Instruction op{.op = OpKind::layer_norm,
                       .reads = {t.run({10, 6}), t.parameter({6}), t.parameter({6})},
                       .writes = {t.run({10, 6}), t.buffer({10}), t.buffer({10})}};
  CHECK(t.backward_ops(op) == std::vector<std::string>{"layer_norm_weight_grad"});
}

TEST_CASE("layer_norm_input_grad reads the row statistics and perhaps a gradient to add") {
  OneOp t(DType::f16);
  const Instruction op{.op = OpKind::layer_norm_input_grad,
                       .reads = {t.run({10, 6}), t.run({10, 6}), t.run({6}), t.buffer({10}),
                                 t.buffer({10}), t.run({10, 6})},
                       .writes = {t.run({10, 6})}};
  CHECK(t.refusal(op) == "");
  CHECK(t.refusal(with_read(op, 5, kNone)) == "");
  CHECK_THAT(t.refusal(with_read(op, 5, t.run({10, 5}))), Contains("60 elements of f16"));
  CHECK_THAT(t.refusal(with_read(op, 3, t.run({10}))), Contains("10 elements of f32"));
  CHECK_THAT(t.refusal(with_read(op, 0, t.run({9, 6}))), Contains("60 elements of f16"));
  CHECK_THAT(t.refusal(with_write(op, 0, op.reads[0])), Contains("overlaps input 0"));
}

TEST_CASE("layer_norm_weight_grad writes two f32 rows") {
  OneOp t(DType::f16);
  const Instruction op{.op = OpKind::layer_norm_weight_grad,
                       .reads = {t.run({10, 6}), t.run({10, 6}), t.buffer({10}), t.buffer({10})},
                       .writes = {t.buffer({6}), t.buffer({6})}};
  CHECK(t.refusal(op) == "");
  CHECK_THAT(t.refusal(with_write(op, 0, t.run({6}))), Contains("6 elements of f32"));
  CHECK_THAT(t.refusal(with_write(op, 1, t.buffer({10}))), Contains("6 elements of f32"));
  CHECK_THAT(t.refusal(with_read(op, 2, t.buffer({6}))), Contains("10 elements of f32"));
}

TEST_CASE("layer_norm_grad takes the operands of both gradients") {
  OneOp t(DType::f16);
  const Instruction op{.op = OpKind::layer_norm_grad,
                       .reads = {t.run({10, 6}), t.run({10, 6}), t.run({6}), t.buffer({10}),
                                 t.buffer({10}), t.run({10, 6})},
                       .writes = {t.run({10, 6}), t.buffer({6}), t.buffer({6})}};
  CHECK(t.refusal(op) == "");
  CHECK(t.refusal(with_read(op, 5, kNone)) == "");
  CHECK_THAT(t.refusal(with_read(op, 4, t.run({10}))), Contains("10 elements of f32"));
  CHECK_THAT(t.refusal(with_write(op, 2, t.run({6}))), Contains("6 elements of f32"));
  CHECK_THAT(t.refusal(with_write(op, 0, op.reads[1])), Contains("overlaps input 1"));
}

TEST_CASE("add_layer_norm writes the sum and its norm") {
  OneOp t(DType::bf16);
  const Instruction op{.op = OpKind::add_layer_norm,
                       .attrs = AddLayerNormAttrs{.add = {.dropout = 0.1f, .seq_len = 5}},
                       .reads = {t.run({10, 6}), t.run({10, 6}), t.run({6}), t.run({6})},
                       .writes = {t.run({10, 6}), t.run({10, 6}), t.buffer({10}), t.buffer({10})}};
  CHECK(t.refusal(op) == "");
  CHECK_THAT(t.refusal(with_read(op, 1, t.run({9, 6}))), Contains("60 elements of bf16"));
  CHECK_THAT(t.refusal(with_write(op, 3, t.run({10}))), Contains("10 elements of f32"));
  CHECK_THAT(t.refusal(with_write(op, 0, op.reads[0])), Contains("overlaps"));
  Instruction odd = op;
  odd.attrs = AddLayerNormAttrs{.add = {.seq_len = 4}};
  CHECK_THAT(t.refusal(odd), Contains("rows must divide into samples"));
}
