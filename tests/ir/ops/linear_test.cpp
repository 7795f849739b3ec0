#include "tests/ir/one_op.h"

using namespace dstrain;
using Catch::Contains;

namespace {

// x (10,6) w (4,6) -> y (10,4)
Instruction linear_op(OneOp& t) {
  return {.op = OpKind::linear,
          .reads = {t.run({10, 6}), t.run({4, 6}), t.run({4}), kNone},
          .writes = {t.run({10, 4})}};
}

}  // namespace

TEST_CASE("linear's operands have the features of its weight") {
  for (const DType run : {DType::f32, DType::bf16, DType::f16}) {
    OneOp t(run);
    const Instruction op = linear_op(t);
    CHECK(t.refusal(op) == "");
    CHECK(t.refusal(with_attrs(op, kRelu)) == "");
    CHECK(t.refusal(with_read(op, 2, kNone)) == "");
    CHECK(t.refusal(with_read(op, 3, t.buffer({96}, DType::u8))) == "");  // packed
    CHECK_THAT(t.refusal(with_read(op, 1, t.run({4, 5}))), Contains("24 elements"));
    CHECK_THAT(t.refusal(with_read(op, 2, t.run({6}))), Contains("4 elements"));
    CHECK_THAT(t.refusal(with_read(op, 0, t.buffer({10, 6}, DType::i32))),
               Contains("values of f32, bf16 or f16"));
    CHECK_THAT(t.refusal(with_write(op, 0, t.run({9, 4}))), Contains("40 elements"));
    CHECK_THAT(t.refusal(with_write(op, 0, t.run({4, 10}))), Contains("number of columns"));
  }
}

TEST_CASE("linear writes what gelu saw only with gelu") {
  OneOp t;
  Instruction op = linear_op(t);
  op.writes.push_back(t.run({10, 4}));
  CHECK_THAT(t.refusal(op), Contains("writes 2 operands, expected 1 to 1"));
  CHECK(t.refusal(with_attrs(op, kGelu)) == "");
  CHECK_THAT(t.refusal(with_write(with_attrs(op, kGelu), 1, t.run({10, 6}))),
             Contains("40 elements"));
}

TEST_CASE("linear adds a residual like its result, without an activation") {
  OneOp t;
  Instruction op = linear_op(t);
  op.reads.resize(5, kNone);
  CHECK(t.refusal(op) == "");
  CHECK(t.refusal(with_read(op, 4, t.run({10, 4}))) == "");
  CHECK_THAT(t.refusal(with_read(op, 4, t.run({10, 6}))), Contains("40 elements"));
  op.reads[4] = t.run({10, 4});
  CHECK_THAT(t.refusal(with_attrs(op, kRelu)), Contains("not added to an activation"));
  CHECK_THAT(t.refusal(with_attrs(op, kGelu)), Contains("not added to an activation"));
  CHECK(t.refusal(with_write(op, 0, op.reads[4])) != "");
}

TEST_CASE("a product and both of its gradients cost 2 M N K") {
  OneOp t;
  CHECK(cost_of(t.program, linear_op(t)).flops == 2.0 * 10 * 4 * 6);
  const Instruction input{.op = OpKind::linear_input_grad,
                          .reads = {t.run({10, 4}), t.run({4, 6})},
                          .writes = {t.run({10, 6})}};
  const Instruction weight{.op = OpKind::linear_weight_grad,
                           .reads = {t.run({10, 4}), t.run({10, 6})},
                           .writes = {t.run({4, 6})}};
  CHECK(cost_of(t.program, input).flops == 2.0 * 10 * 4 * 6);
  CHECK(cost_of(t.program, weight).flops == 2.0 * 10 * 4 * 6);
  CHECK(cost_of(t.program, input).bytes == 4.0 * (40 + 24 + 60));
}

TEST_CASE("linear's backward: input gradient and weight gradient are two ops") {
  OneOp t;
  Instruction op{.op = OpKind::linear,
                 .reads = {t.parameter({10, 6}), t.parameter({4, 6}), t.parameter({4})},
                 .writes = {t.run({10, 4})}};
  CHECK(t.backward_ops(op) ==
        std::vector<std::string>{"linear_input_grad", "linear_weight_grad", "sum_rows"});
  op.reads[0] = t.run({10, 6});  // samples: nobody wants their gradient
  op.reads[2] = kNone;
  CHECK(t.backward_ops(op) == std::vector<std::string>{"linear_weight_grad"});
}

TEST_CASE("relu in a product is differentiated from y, in place where d_y is nobody else's") {
  OneOp t;
  const Instruction op{.op = OpKind::linear,
                       .attrs = kRelu,
                       .reads = {t.run({10, 6}), t.parameter({4, 6})},
                       .writes = {t.run({10, 4})}};
  CHECK(t.backward_ops(op) == std::vector<std::string>{"activation_grad", "linear_weight_grad"});
  const Instruction& slope = t.program.instructions[0];
  CHECK(slope.reads[1] == op.writes[0]);
  CHECK(slope.writes[0] == slope.reads[0]);
  CHECK(slope.attrs == OpAttrs(kRelu));
  CHECK_THROWS_AS(t.backward_ops(with_attrs(op, kGelu)), InternalError);
}

TEST_CASE("linear_input_grad reads gelu's operand only with gelu") {
  OneOp t(DType::bf16);
  Instruction op{.op = OpKind::linear_input_grad,
                 .reads = {t.run({10, 4}), t.run({4, 6}), kNone},
                 .writes = {t.run({10, 6})}};
  CHECK(t.refusal(op) == "");
  CHECK_THAT(t.refusal(with_attrs(op, kGelu)), Contains("input 3 is absent"));
  CHECK_THAT(t.refusal(with_write(op, 0, t.run({10, 4}))), Contains("60 elements"));
  CHECK_THAT(t.refusal(with_read(op, 1, t.run({5, 6}))), Contains("24 elements"));
  op.reads.push_back(t.run({10, 6}));
  CHECK_THAT(t.refusal(op), Contains("reads 4 operands, expected 2 to 3"));
  CHECK(t.refusal(with_attrs(op, kGelu)) == "");
  CHECK_THAT(t.refusal(with_read(with_attrs(op, kGelu), 3, t.run({10, 4}))),
             Contains("60 elements"));
}

TEST_CASE("weight and bias gradients are f32") {
  OneOp t(DType::bf16);
  const BufferId d_y = t.run({10, 4});
  const Instruction weight{.op = OpKind::linear_weight_grad,
                           .reads = {d_y, t.run({10, 6})},
                           .writes = {t.buffer({4, 6})}};
  CHECK(t.refusal(weight) == "");
  CHECK_THAT(t.refusal(with_write(weight, 0, t.run({4, 6}))), Contains("24 elements of f32"));
  CHECK_THAT(t.refusal(with_read(weight, 1, t.run({9, 6}))), Contains("60 elements"));
  const Instruction bias{.op = OpKind::sum_rows, .reads = {d_y}, .writes = {t.buffer({4})}};
  CHECK(t.refusal(bias) == "");
  CHECK_THAT(t.refusal(with_write(bias, 0, t.run({4}))), Contains("4 elements of f32"));
  CHECK_THAT(t.refusal(with_write(bias, 0, t.buffer({10}))), Contains("4 elements of f32"));
}

TEST_CASE("a packed weight is bytes") {
  OneOp t(DType::bf16);
  const Instruction op{.op = OpKind::pack_weight,
                       .attrs = PackAttrs{.rows = 10},
                       .reads = {t.run({4, 6})},
                       .writes = {t.buffer({64}, DType::u8)}};
  CHECK(t.refusal(op) == "");
  CHECK_THAT(t.refusal(with_write(op, 0, t.run({64}))), Contains("is bytes"));
  CHECK_THAT(t.refusal(with_read(op, 0, t.buffer({4, 6}, DType::i32))),
             Contains("values of f32, bf16 or f16"));
}
