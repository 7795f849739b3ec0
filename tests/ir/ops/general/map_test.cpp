#include "tests/ir/one_op.h"

using namespace dstrain;
using Catch::Contains;

namespace {

const Formula kFirst = Formula::input(0), kSecond = Formula::input(1);

Instruction map_of(const Formula& formula, std::vector<BufferId> reads, BufferId to) {
  return {.op = OpKind::map, .attrs = MapAttrs{formula}, .reads = std::move(reads), .writes = {to}};
}

}  // namespace

TEST_CASE("a map takes operands of all elements, and broadcast ones behind the first") {
  OneOp t(DType::bf16);
  const BufferId a = t.run({6, 4}), to = t.run({6, 4});
  for (const Shape& shape : {Shape{6, 4}, Shape{4}, Shape{6, 1}, Shape{1}})
    for (const DType dtype : {DType::bf16, DType::f32})
      CHECK(t.refusal(map_of(kFirst + kSecond, {a, t.buffer(shape, dtype)}, to)) == "");
  CHECK_THAT(t.refusal(map_of(kFirst + kSecond, {a, t.run({6})}, to)),
             Contains("broadcast over its rows"));
  CHECK_THAT(t.refusal(map_of(kFirst + kSecond, {t.run({4}), a}, to)),
             Contains("the first has all"));
  CHECK_THAT(t.refusal(map_of(kFirst + kSecond, {a}, to)), Contains("operands that there are not"));
  CHECK_THAT(t.refusal(map_of(Formula(1), {a}, to)), Contains("operands that there are not"));
  CHECK_THAT(t.refusal(map_of(kFirst, {t.buffer({6, 4}, DType::i32)}, to)),
             Contains("values of f32"));
  CHECK_THAT(t.refusal(map_of(kFirst, {a}, a)), Contains("overlap"));
}

TEST_CASE("rows of a map are divided, and columns where no operand has a value for each of them") {
  OneOp t;
  const BufferId a = t.run({6, 4}), to = t.run({6, 4});
  const auto axes = [&](const Shape& second) {
    return axes_of(t.program, map_of(kFirst * kSecond, {a, t.run(second)}, to));
  };
  CHECK(axes({6, 4}).along(OperandAxis::row) == Along::mapped);
  CHECK(axes({6, 4}).along(OperandAxis::channel) == Along::mapped);
  CHECK(axes({6, 4}).read(1).has_columns());
  CHECK(axes({4}).along(OperandAxis::row) == Along::mapped);
  CHECK(axes({4}).along(OperandAxis::channel) == Along::whole);
  CHECK(axes({6, 1}).read(1).has(OperandAxis::row));
  CHECK(axes({1}).read(1).count == 0);
}

TEST_CASE("gradients of a map are maps of what its derivative reads, and sums for columns") {
  using Ops = std::vector<std::string>;
  OneOp t;
  const BufferId w = t.parameter({6, 4}), v = t.parameter({4}), to = t.run({6, 4});
  CHECK(t.backward_ops(map_of(kFirst * kSecond, {w, v}, to)) == Ops{"map", "map", "sum_rows"});
  const Instruction& of_w = t.program.instructions[0];
  CHECK(of_w.reads.size() == 2);
  CHECK(of_w.reads[1] == v);
  CHECK(attrs_as<MapAttrs>(of_w.attrs).formula == kFirst * kSecond);
  CHECK(t.backward_ops(map_of(kFirst - 3, {w}, to)) == Ops{"map"});
  CHECK(t.program.instructions[0].reads.size() == 1);  // the gradient alone
  CHECK(t.backward_ops(map_of(less(kFirst, 1), {w}, to)) == Ops{});
  CHECK(t.backward_ops(map_of(kFirst * kSecond, {w, t.parameter({6, 1})}, to)) ==
        Ops{"map", "reduce"});
}
