#include "tests/ir/one_op.h"

using namespace dstrain;
using Catch::Contains;

TEST_CASE("activation keeps shape and dtype, and names its kind") {
  OneOp t(DType::bf16);
  const Instruction op{.op = OpKind::activation,
                       .attrs = kGelu,
                       .reads = {t.run({10, 6})},
                       .writes = {t.run({10, 6})}};
  CHECK(t.refusal(op) == "");
  CHECK_THAT(t.refusal(with_attrs(op, {})), Contains("no activation is named"));
  CHECK_THAT(t.refusal(with_write(op, 0, t.buffer({10, 6}))), Contains("60 elements of bf16"));
  CHECK_THAT(t.refusal(with_read(op, 0, t.run({10, 5}))), Contains("60 elements of bf16"));
  CHECK_THAT(t.refusal(with_write(op, 0, op.reads[0])), Contains("overlaps"));
}

TEST_CASE("relu's slope is taken at y, gelu's at x") {
  for (const ActivationAttrs& kind : {kRelu, kGelu}) {
    OneOp t;
    const Instruction op{.op = OpKind::activation,
                         .attrs = kind,
                         .reads = {t.parameter({10, 6})},
                         .writes = {t.run({10, 6})}};
    CHECK(t.backward_ops(op) == std::vector<std::string>{"activation_grad"});
    const bool relu = kind.activation == Activation::relu;
    CHECK(t.program.instructions[0].reads[1] == (relu ? op.writes[0] : op.reads[0]));
    CHECK(t.program.instructions[0].attrs == OpAttrs(kind));
  }
}

TEST_CASE("activation of what needs no gradient has no backward op") {
  OneOp t;
  CHECK(t.backward_ops({.op = OpKind::activation,
                        .attrs = kRelu,
                        .reads = {t.run({10, 6})},
                        .writes = {t.run({10, 6})}})
            .empty());
}

TEST_CASE("activation_grad may overwrite d_y and nothing else") {
  OneOp t;
  const Instruction op{.op = OpKind::activation_grad,
                       .attrs = kRelu,
                       .reads = {t.run({10, 6}), t.run({10, 6})},
                       .writes = {t.run({10, 6})}};
  CHECK(t.refusal(op) == "");
  CHECK(t.refusal(with_write(op, 0, op.reads[0])) == "");
  CHECK_THAT(t.refusal(with_write(op, 0, op.reads[1])), Contains("overlaps input 1"));
  CHECK_THAT(t.refusal(with_read(op, 1, t.run({10, 5}))), Contains("60 elements"));
}

TEST_CASE("add_dropout works on whole samples") {
  OneOp t;
  const Instruction op{.op = OpKind::add_dropout,
                       .attrs = DropoutAttrs{.dropout = 0.1f, .seq_len = 5},
                       .reads = {t.run({10, 6}), t.run({10, 6})},
                       .writes = {t.run({10, 6})}};
  CHECK(t.refusal(op) == "");
  CHECK_THAT(t.refusal(with_attrs(op, DropoutAttrs{.seq_len = 3})), Contains("into samples"));
  CHECK_THAT(t.refusal(with_attrs(op, {})), Contains("into samples"));
  CHECK_THAT(t.refusal(with_read(op, 1, t.run({10, 5}))), Contains("60 elements"));
  CHECK_THAT(t.refusal(with_write(op, 0, op.reads[0])), Contains("overlaps"));
}

TEST_CASE("the residual's gradient passes add_dropout as it is; h's is dropped where h was") {
  OneOp t;
  const BufferId x = t.parameter({10, 6}), h = t.parameter({10, 6});
  Instruction op{.op = OpKind::add_dropout,
                 .attrs = DropoutAttrs{.dropout = 0.1f, .site = 3, .seq_len = 5},
                 .reads = {x, h},
                 .writes = {t.run({10, 6})}};
  CHECK(t.backward_ops(op) == std::vector<std::string>{"dropout_grad"});
  CHECK(t.program.instructions[0].attrs == op.attrs);  // the same site drops the same elements
  op.attrs = DropoutAttrs{.seq_len = 5};
  CHECK(t.backward_ops(op).empty());
}

TEST_CASE("the gradient of dropout is dropout by the same mask") {
  OneOp t;
  const Instruction op{.op = OpKind::dropout_grad,
                       .attrs = DropoutAttrs{.dropout = 0.1f, .site = 3, .seq_len = 5},
                       .reads = {t.parameter({10, 6})},
                       .writes = {t.run({10, 6})}};
  CHECK(t.backward_ops(op) == std::vector<std::string>{"dropout_grad"});
  CHECK(t.program.instructions[0].attrs == op.attrs);
  CHECK(t.backward_ops({.op = OpKind::dropout_grad,
                        .attrs = op.attrs,
                        .reads = {t.run({10, 6})},
                        .writes = {t.run({10, 6})}})
            .empty());
}

TEST_CASE("dropout_grad and add keep shape and dtype") {
  OneOp t(DType::f16);
  const BufferId a = t.run({10, 6});
  const Instruction drop{.op = OpKind::dropout_grad,
                         .attrs = DropoutAttrs{.dropout = 0.1f, .seq_len = 5},
                         .reads = {a},
                         .writes = {t.run({10, 6})}};
  CHECK(t.refusal(drop) == "");
  CHECK_THAT(t.refusal(with_write(drop, 0, a)), Contains("overlaps"));
  CHECK_THAT(t.refusal(with_write(drop, 0, t.buffer({10, 6}))), Contains("60 elements of f16"));
  const Instruction add{
      .op = OpKind::add, .reads = {a, t.run({10, 6})}, .writes = {t.run({10, 6})}};
  CHECK(t.refusal(add) == "");
  CHECK_THAT(t.refusal(with_read(add, 1, t.buffer({10, 6}))), Contains("60 elements of f16"));
  CHECK_THAT(t.refusal(with_write(add, 0, a)), Contains("overlaps"));
}

TEST_CASE("scale keeps shape and dtype, and may overwrite what it reads") {
  OneOp t(DType::bf16);
  const Instruction op{.op = OpKind::scale,
                       .attrs = ScaleAttrs{.factor = 0.5f},
                       .reads = {t.run({10, 6})},
                       .writes = {t.run({10, 6})}};
  CHECK(name_of(op.op) == "scale");
  CHECK(t.refusal(op) == "");
  CHECK(t.refusal(with_attrs(op, {})) == "");
  CHECK(t.refusal(with_write(op, 0, op.reads[0])) == "");
  CHECK_THAT(t.refusal(with_attrs(op, kRelu)), Contains("attributes of another op"));
  CHECK_THAT(t.refusal(with_write(op, 0, t.buffer({10, 6}))), Contains("60 elements of bf16"));
  CHECK_THAT(t.refusal(with_read(op, 0, t.run({10, 5}))), Contains("60 elements of bf16"));
  CHECK(rule_of(op.op).repeatable);
  CHECK(cost_of(t.program, op).flops == 0);
  CHECK(cost_of(t.program, op).bytes == 2 * 60 * 2);
}

TEST_CASE(
    "the gradient of scale is scaled by the same factor, in place where nothing else reads it") {
  OneOp t;
  const Instruction op{.op = OpKind::scale,
                       .attrs = ScaleAttrs{.factor = 0.25f},
                       .reads = {t.parameter({10, 6})},
                       .writes = {t.run({10, 6})}};
  CHECK(t.backward_ops(op) == std::vector<std::string>{"scale"});
  const Instruction alone = t.program.instructions[0];
  CHECK(alone.attrs == op.attrs);
  CHECK(alone.phase == Phase::backward);
  CHECK(alone.writes[0] == alone.reads[0]);

  Gradients g(t.program);
  g.mark(op);
  const BufferId d_y = g.like(op.writes[0]), other = t.run({10, 6});
  g.contribute(op.writes[0], d_y);
  g.contribute(other, d_y);  // as the residual beside it has
  rule_of(op.op).backward(op, g);
  const Instruction& shared = t.program.instructions.back();
  CHECK(shared.reads == std::vector<BufferId>{d_y});
  CHECK(shared.writes[0] != d_y);
  CHECK(g.of(op.reads[0]) == shared.writes[0]);
  CHECK(g.of(other) == d_y);

  CHECK(t.backward_ops(with_read(op, 0, t.run({10, 6}))).empty());
}

TEST_CASE("gated takes two operands of one shape, and silu or gelu") {
  OneOp t(DType::bf16);
  const ActivationAttrs silu{Activation::silu};
  const Instruction op{.op = OpKind::gated,
                       .attrs = silu,
                       .reads = {t.run({10, 6}), t.run({10, 6})},
                       .writes = {t.run({10, 6})}};
  CHECK(t.refusal(op) == "");
  CHECK(t.refusal(with_attrs(op, kGelu)) == "");
  CHECK(t.refusal(with_attrs(op, ActivationAttrs{Activation::gelu_erf})) == "");
  CHECK_THAT(t.refusal(with_attrs(op, kRelu)), Contains("the gate's activation is silu"));
  CHECK_THAT(t.refusal(with_attrs(op, {})), Contains("the gate's activation is silu"));
  CHECK_THAT(t.refusal(with_read(op, 1, t.run({10, 5}))), Contains("60 elements of bf16"));
  CHECK_THAT(t.refusal(with_write(op, 0, op.reads[1])), Contains("overlaps"));
  CHECK_THAT(t.refusal({.op = OpKind::activation,
                        .attrs = silu,
                        .reads = {op.reads[0]},
                        .writes = {op.writes[0]}}),
             Contains("silu is computed by gated"));
}

TEST_CASE("softcap keeps shape and dtype and has a cap, and its slope is taken at x") {
  OneOp t(DType::bf16);
  const Instruction op{.op = OpKind::softcap,
                       .attrs = SoftcapAttrs{30},
                       .reads = {t.parameter({10, 6})},
                       .writes = {t.run({10, 6})}};
  CHECK(t.refusal(op) == "");
  CHECK_THAT(t.refusal(with_attrs(op, SoftcapAttrs{0})), Contains("the cap is above 0"));
  CHECK_THAT(t.refusal(with_attrs(op, SoftcapAttrs{-1})), Contains("the cap is above 0"));
  CHECK_THAT(t.refusal(with_attrs(op, {})), Contains("the cap is above 0"));
  CHECK_THAT(t.refusal(with_write(op, 0, t.run({10, 5}))), Contains("elements of bf16"));
  CHECK_THAT(t.refusal(with_write(op, 0, op.reads[0])), Contains("overlaps"));
  CHECK(rule_of(op.op).repeatable);
  CHECK(t.backward_ops(op) == std::vector<std::string>{"softcap_grad"});
  const Instruction back = t.program.instructions[0];
  CHECK(back.attrs == op.attrs);
  CHECK(back.reads[1] == op.reads[0]);
  CHECK(back.writes[0] == back.reads[0]);
  CHECK(t.refusal(back) == "");
  CHECK_THAT(t.refusal(with_write(back, 0, back.reads[1])), Contains("overlaps input 1"));
  CHECK(t.backward_ops(with_read(op, 0, t.run({10, 6}))).empty());
}

TEST_CASE("gated_grad has both gradients, and may overwrite d_y with the gate's") {
  OneOp t;
  const Instruction op{.op = OpKind::gated,
                       .attrs = ActivationAttrs{Activation::silu},
                       .reads = {t.parameter({10, 6}), t.parameter({10, 6})},
                       .writes = {t.run({10, 6})}};
  CHECK(t.backward_ops(op) == std::vector<std::string>{"gated_grad"});
  const Instruction back = t.program.instructions[0];
  CHECK(back.attrs == op.attrs);
  CHECK(back.writes[0] == back.reads[0]);
  CHECK_THAT(t.refusal(with_write(back, 0, back.reads[1])), Contains("overlaps input 1"));
  CHECK_THAT(t.refusal(with_write(back, 1, back.reads[0])), Contains("overlaps input 0"));
  CHECK_THAT(t.refusal(with_write(back, 1, t.run({10, 5}))), Contains("60 elements of f32"));
  CHECK_THAT(t.refusal(with_attrs(back, kRelu)), Contains("the gate's activation is silu"));

  Gradients g(t.program);
  const BufferId d_y = g.like(op.writes[0]);
  g.contribute(op.writes[0], d_y);
  rule_of(op.op).backward(op, g);
  CHECK(g.of(op.reads[0]) == d_y);
  CHECK(g.of(op.reads[1]) == t.program.instructions.back().writes[1]);
  CHECK(t.backward_ops(with_read(with_read(op, 0, t.run({10, 6})), 1, t.run({10, 6}))).empty());
}

TEST_CASE("add_dropout takes a part of the rows of whole samples, which its gradient has too") {
  OneOp t;
  const auto part = [](int64_t first, int64_t all) {
    return DropoutAttrs{.dropout = 0.1f, .site = 3, .seq_len = 5, .part = {first, all}};
  };
  const Instruction op{.op = OpKind::add_dropout,
                       .attrs = part(3, 10),
                       .reads = {t.run({4, 6}), t.parameter({4, 6})},
                       .writes = {t.run({4, 6})}};
  CHECK(t.refusal(op) == "");
  CHECK_THAT(t.refusal(with_attrs(op, part(7, 10))), Contains("into samples"));
  CHECK_THAT(t.refusal(with_attrs(op, part(3, 9))), Contains("into samples"));
  CHECK(t.backward_ops(op) == std::vector<std::string>{"dropout_grad"});
  CHECK(t.program.instructions[0].attrs == op.attrs);
}
