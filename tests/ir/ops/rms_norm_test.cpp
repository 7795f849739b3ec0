#include "runtime/ir/builder/builder.h"
#include "tests/ir/one_op.h"

using namespace dstrain;
using Catch::Contains;

TEST_CASE("rms_norm normalises runs of as many columns as there are weights") {
  OneOp t(DType::bf16);
  const Instruction op{.op = OpKind::rms_norm,
                       .attrs = RmsNormAttrs{1e-6f},
                       .reads = {t.run({10, 6}), t.run({6})},
                       .writes = {t.run({10, 6}), t.buffer({10})}};
  CHECK(t.refusal(op) == "");
  CHECK(t.refusal(with_write(with_read(op, 1, t.run({3})), 1, t.buffer({10, 2}))) == "");
  CHECK_THAT(t.refusal(with_read(op, 1, t.run({3}))), Contains("20 elements of f32"));
  CHECK_THAT(t.refusal(with_read(op, 1, t.run({4}))), Contains("columns must divide into runs"));
  CHECK_THAT(t.refusal(with_read(op, 1, t.buffer({6}))), Contains("6 elements of bf16"));
  CHECK_THAT(t.refusal(with_write(op, 0, t.run({5, 6}))), Contains("60 elements of bf16"));
  CHECK_THAT(t.refusal(with_write(op, 0, op.reads[0])), Contains("overlaps"));
  CHECK_THAT(t.refusal(with_write(op, 1, t.run({10}))), Contains("10 elements of f32"));
}

TEST_CASE("rms_norm's backward takes along the gradient that its input already has") {
  OneOp t;
  const BufferId x = t.parameter({10, 6});
  const Instruction op{.op = OpKind::rms_norm,
                       .reads = {x, t.parameter({3})},
                       .writes = {t.run({10, 6}), t.buffer({10, 2})}};
  CHECK(t.backward_ops(op) ==
        std::vector<std::string>{"rms_norm_input_grad", "rms_norm_weight_grad"});
  CHECK(t.program.instructions[0].reads[4] == kNone);

  Gradients g(t.program);
  const BufferId before = g.like(x);
  g.contribute(x, before);
  g.contribute(op.writes[0], g.like(op.writes[0]));
  t.program.instructions.clear();
  rule_of(op.op).backward(op, g);
  REQUIRE(t.program.instructions.size() == 2);
  CHECK(t.program.instructions[0].reads[4] == before);
  CHECK(g.of(x) == t.program.instructions[0].writes[0]);
}

TEST_CASE("rms_norm has the gradients of what is trained alone") {
  OneOp t;
  const Instruction weight{.op = OpKind::rms_norm,
                           .reads = {t.run({10, 6}), t.parameter({6})},
                           .writes = {t.run({10, 6}), t.buffer({10})}};
  CHECK(t.backward_ops(weight) == std::vector<std::string>{"rms_norm_weight_grad"});
  const Instruction input{.op = OpKind::rms_norm,
                          .reads = {t.parameter({10, 6}), t.parameter({6})},
                          .writes = {t.run({10, 6}), t.buffer({10})}};
  t.program.parameters.back().frozen = true;
  CHECK(t.backward_ops(input) == std::vector<std::string>{"rms_norm_input_grad"});
}

TEST_CASE("gradients of rms_norm know whether its weights are centred") {
  OneOp t;
  const Instruction op{.op = OpKind::rms_norm,
                       .attrs = RmsNormAttrs{.eps = 1e-6f, .centred = true},
                       .reads = {t.parameter({10, 6}), t.parameter({6})},
                       .writes = {t.run({10, 6}), t.buffer({10})}};
  CHECK(t.refusal(op) == "");
  REQUIRE(t.backward_ops(op).size() == 2);
  for (const Instruction& back : t.program.instructions) CHECK(back.attrs == op.attrs);
}

TEST_CASE("gradients of rms_norm read 1/rms and perhaps a gradient to add") {
  OneOp t(DType::f16);
  const Instruction input{
      .op = OpKind::rms_norm_input_grad,
      .reads = {t.run({10, 6}), t.run({10, 6}), t.run({3}), t.buffer({10, 2}), t.run({10, 6})},
      .writes = {t.run({10, 6})}};
  CHECK(t.refusal(input) == "");
  CHECK(t.refusal(with_read(input, 4, kNone)) == "");
  CHECK_THAT(t.refusal(with_read(input, 4, t.run({10, 5}))), Contains("60 elements of f16"));
  CHECK_THAT(t.refusal(with_read(input, 3, t.run({10}))), Contains("20 elements of f32"));
  CHECK_THAT(t.refusal(with_read(input, 0, t.run({9, 6}))), Contains("60 elements of f16"));
  CHECK_THAT(t.refusal(with_read(input, 2, t.run({5}))), Contains("columns must divide"));
  CHECK_THAT(t.refusal(with_write(input, 0, input.reads[0])), Contains("overlaps input 0"));

  const Instruction weight{.op = OpKind::rms_norm_weight_grad,
                           .reads = {t.run({10, 6}), t.run({10, 6}), t.buffer({10, 2})},
                           .writes = {t.buffer({3})}};
  CHECK(t.refusal(weight) == "");
  CHECK_THAT(t.refusal(with_write(weight, 0, t.run({3}))), Contains("3 elements of f32"));
  CHECK_THAT(t.refusal(with_write(weight, 0, t.buffer({6}))), Contains("10 elements of f32"));
  CHECK_THAT(t.refusal(with_write(weight, 0, t.buffer({4}))), Contains("columns must divide"));
  CHECK_THAT(t.refusal(with_read(weight, 1, t.run({9, 6}))), Contains("54 elements of f16"));
}

TEST_CASE("the builder's rms_norm keeps the shape and has 1/rms of each run") {
  Program program;
  Builder b(program, {.batch = 2});
  b.unit("u");
  const BufferId x = b.input("notes", InputRole::features, DType::f32, {5, 6});
  const BufferId whole = b.rms_norm(x, b.parameter("a.weight", {6}, Init::ones), {.eps = 1e-5f});
  CHECK(program.at(whole).shape == Shape{2, 5, 6});
  CHECK(program.at(whole).name == "u.a");
  CHECK(program.at(program.instructions.back().writes[1]).shape == Shape{10, 1});
  CHECK(program.instructions.back().attrs == OpAttrs(RmsNormAttrs{1e-5f}));
  b.rms_norm(x, b.parameter("b.weight", {2}, Init::ones), {.eps = 1e-6f});
  CHECK(program.at(program.instructions.back().writes[1]).shape == Shape{10, 3});
  CHECK_THROWS_WITH(b.rms_norm(x, b.parameter("c.weight", {4}, Init::ones), {.eps = 1e-6f}),
                    Contains("columns must divide into runs"));
}
