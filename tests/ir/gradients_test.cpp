#include "runtime/ir/gradients.h"

#include "tests/ir/one_op.h"

using namespace dstrain;

TEST_CASE("a value needs a gradient where a parameter stands behind it") {
  OneOp t;
  const BufferId w = t.parameter({4}), x = t.run({4}), y = t.run({4}), z = t.run({4});
  Gradients g(t.program);
  g.mark({.op = OpKind::add, .reads = {x, x}, .writes = {y}});
  CHECK(g.needs(w));
  CHECK_FALSE(g.needs(x));
  CHECK_FALSE(g.needs(y));
  g.mark({.op = OpKind::add, .reads = {y, w}, .writes = {z}});
  CHECK(g.needs(z));
  CHECK_FALSE(g.needs(kNone));
}

TEST_CASE("a second contribution to a gradient is added to the first") {
  OneOp t;
  const BufferId x = t.run({4});
  Gradients g(t.program);
  const BufferId first = g.like(x), second = g.like(x);
  g.contribute(x, first);
  CHECK(t.program.instructions.empty());
  CHECK(g.of(x) == first);
  CHECK(g.exclusive(first));
  g.contribute(x, second);
  REQUIRE(t.program.instructions.size() == 1);
  const Instruction& add = t.program.instructions[0];
  CHECK(add.op == OpKind::add);
  CHECK(add.reads == std::vector{first, second});
  CHECK(g.of(x) == add.writes[0]);
  CHECK_FALSE(g.exclusive(first));
}

TEST_CASE("a gradient that stands for two values is nobody's to overwrite") {
  OneOp t;
  const BufferId x = t.run({4}), y = t.run({4});
  Gradients g(t.program);
  const BufferId both = g.like(x);
  g.contribute(x, both);
  g.contribute(y, both);
  CHECK_FALSE(g.exclusive(both));
}

TEST_CASE("weight gradients are f32 and accumulate over micro-batches; a tied use always adds") {
  OneOp t(DType::bf16);
  const BufferId w = t.parameter({4, 6});
  Gradients g(t.program);
  for (int use = 0; use < 2; ++use)
    g.emit_weight(OpKind::linear_weight_grad, {}, {t.run({10, 4}), t.run({10, 6})}, {w});
  g.emit_weight(OpKind::sum_rows, {}, {t.run({10, 4})}, {kNone});  // nobody wants it
  REQUIRE(t.program.instructions.size() == 2);
  const BufferId gradient = t.program.parameters[0].gradient;
  CHECK(t.program.at(gradient).dtype == DType::f32);
  CHECK(t.program.at(gradient).shape == Shape{4, 6});
  for (const Instruction& op : t.program.instructions) CHECK(op.writes == std::vector{gradient});
  CHECK(t.program.instructions[0].accumulate == Accumulate::after_first_micro);
  CHECK(t.program.instructions[1].accumulate == Accumulate::always);
}

TEST_CASE("a parameter that is read like any other values gets what contributes to it") {
  OneOp t(DType::bf16);
  const BufferId w = t.parameter({4, 6});
  Gradients g(t.program);
  const BufferId first = g.like(w), second = g.like(w);
  const Instruction reader{.op = OpKind::scale, .reads = {w}, .writes = {t.run({4, 6})}};
  g.contribute(w, first);
  g.settle(reader);
  g.replace(w, second);
  g.settle(reader);
  g.settle(reader);  // there is nothing more
  REQUIRE(t.program.instructions.size() == 2);
  const BufferId gradient = t.program.parameters[0].gradient;
  REQUIRE(gradient != kNone);
  CHECK(g.of(w) == kNone);
  for (const Instruction& op : t.program.instructions) {
    CHECK(op.op == OpKind::map);
    CHECK(op.writes == std::vector{gradient});
  }
  CHECK(t.program.instructions[0].reads == std::vector{first});
  CHECK(t.program.instructions[1].reads == std::vector{second});
  CHECK(t.program.instructions[1].accumulate == Accumulate::always);
}
