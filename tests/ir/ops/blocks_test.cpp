#include "tests/ir/one_op.h"

using namespace dstrain;
using Catch::Contains;

TEST_CASE("unpack_weight reads whole groups and writes a weight of the run's dtype") {
  OneOp t(DType::bf16);
  const BufferId y = t.run({33, 40});  // 1320 values: two groups
  const BufferId nf4 = t.buffer({2 * 576}, DType::u8), int8 = t.buffer({2, 1088}, DType::u8);
  const Instruction op{.op = OpKind::unpack_weight, .reads = {nf4}, .writes = {y}};
  CHECK(t.refusal(op) == "");  // nf4 where nothing is said
  CHECK(t.refusal(with_attrs(op, UnpackAttrs{BlockFormat::nf4})) == "");
  const Instruction bytes = with_attrs(op, UnpackAttrs{BlockFormat::int8});
  CHECK(t.refusal(with_read(bytes, 0, int8)) == "");
  CHECK_THAT(t.refusal(bytes), Contains("2176 elements of u8"));
  CHECK_THAT(t.refusal(with_read(op, 0, int8)), Contains("1152 elements of u8"));
  CHECK_THAT(t.refusal(with_read(op, 0, t.buffer({2 * 576}))), Contains("1152 elements of u8"));
  CHECK_THAT(t.refusal(with_attrs(op, UnpackAttrs{BlockFormat::none})), Contains("no format"));
  CHECK_THAT(t.refusal(with_write(op, 0, t.buffer({33, 40}))), Contains("1320 elements of bf16"));
  CHECK_THAT(t.refusal(with_write(op, 0, t.run({64, 40}))), Contains("elements of u8"));
  CHECK_THAT(t.refusal(with_attrs(op, PackAttrs{})), Contains("attributes of another op"));
  Instruction two = op;
  two.reads.push_back(nf4);
  CHECK(t.refusal(two) != "");
}

TEST_CASE("unpack_weight costs the memory traffic of both operands, and may run again") {
  OneOp t(DType::bf16);
  const Instruction op{.op = OpKind::unpack_weight,
                       .reads = {t.buffer({2 * 576}, DType::u8)},
                       .writes = {t.run({33, 40})}};
  CHECK(cost_of(t.program, op).bytes == 2 * 576 + 2 * 33 * 40);
  CHECK(cost_of(t.program, op).flops == 0);
  CHECK(rule_of(OpKind::unpack_weight).repeatable);
}

TEST_CASE("no gradient reaches an unpacked weight, and it needs no backward rule") {
  OneOp t;
  const BufferId packed = t.buffer({1088}, DType::u8), weight = t.run({5, 8});
  t.program.at(packed).parameter = 0;
  t.program.parameters.push_back(
      {.name = "base", .shape = {5, 8}, .frozen = true, .value = packed});
  const Instruction unpack{.op = OpKind::unpack_weight,
                           .attrs = UnpackAttrs{BlockFormat::int8},
                           .reads = {packed},
                           .writes = {weight}};
  CHECK(t.refusal(unpack) == "");
  const BufferId x = t.parameter({3, 8}), y = t.run({3, 5});
  const Instruction product{.op = OpKind::linear, .reads = {x, weight}, .writes = {y}};
  t.program.instructions = {unpack, product};
  Gradients gradients(t.program);
  for (const Instruction& op : {unpack, product}) gradients.mark(op);
  CHECK_FALSE(gradients.needs(weight));
  CHECK(gradients.needs(y));
  CHECK(rule_of(OpKind::unpack_weight).backward == nullptr);
  CHECK(t.backward_ops(product) == std::vector<std::string>{"linear_input_grad"});
}
