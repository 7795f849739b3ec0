#include "tests/ir/one_op.h"

using namespace dstrain;
using Catch::Contains;

TEST_CASE("adam updates f32 state of the gradient's size, and a copy in the run's dtype") {
  OneOp t(DType::bf16);
  const Instruction op{.op = OpKind::adam,
                       .attrs = AdamAttrs{.weight_decay = 0.1f},
                       .reads = {t.buffer({12})},
                       .writes = {t.buffer({12}), t.buffer({12}), t.buffer({12}), t.run({12})}};
  CHECK(t.refusal(op) == "");
  CHECK(t.refusal(with_write(op, 3, kNone)) == "");
  CHECK(t.refusal(with_read(op, 0, t.run({12}))) == "");
  CHECK_THAT(t.refusal(with_read(op, 0, t.buffer({12}, DType::f16))), Contains("a sum is f32"));
  for (const size_t state : {0, 1, 2})
    CHECK_THAT(t.refusal(with_write(op, state, t.buffer({11}))), Contains("12 elements of f32"));
  for (const size_t state : {1, 2})
    CHECK_THAT(t.refusal(with_write(op, state, t.run({12}))), Contains("12 elements of f32"));
  CHECK_THAT(t.refusal(with_write(op, 3, t.buffer({12}))), Contains("12 elements of bf16"));
  CHECK_THAT(t.refusal(with_write(op, 0, op.reads[0])), Contains("overlaps"));
}

TEST_CASE(
    "adam updates parameters that are their own masters, with state of f32 or of their dtype") {
  OneOp t(DType::bf16);
  Instruction op{.op = OpKind::adam,
                 .attrs = AdamAttrs{.weight_decay = 0.1f},
                 .reads = {t.run({12})},
                 .writes = {t.run({12}), t.buffer({12}), t.buffer({12}), kNone}};
  CHECK(t.refusal(op) == "");
  CHECK(t.refusal(with_read(op, 0, t.buffer({12}))) == "");
  CHECK_THAT(t.refusal(with_write(op, 3, t.run({12}))), Contains("16-bit masters have no copy"));
  CHECK_THAT(t.refusal(with_write(op, 0, t.buffer({12}, DType::f16))),
             Contains("12 elements of bf16"));
  CHECK_THAT(t.refusal(with_write(op, 2, t.run({12}))), Contains("12 elements of f32"));
  op.writes[1] = t.run({12});
  CHECK_THAT(t.refusal(op), Contains("12 elements of bf16"));
  op.writes[2] = t.run({12});
  CHECK(t.refusal(op) == "");
}

TEST_CASE("state in 8 bits is a code for each element and an absmax for each block of 256") {
  OneOp t(DType::bf16);
  const auto op_of = [&](OpKind kind, int slots) {
    Instruction op{.op = kind, .reads = {t.run({600})}, .writes = {t.buffer({600})}};
    for (int i = 0; i < slots; ++i) {
      op.writes.push_back(t.buffer({600}, DType::u8));
      op.writes.push_back(t.buffer({3}));
    }
    op.writes.push_back(t.run({600}));
    return op;
  };
  for (const auto& [kind, slots] : {std::pair{OpKind::adam_8bit, 2}, {OpKind::lion_8bit, 1}}) {
    const Instruction op = op_of(kind, slots);
    CHECK(t.refusal(op) == "");
    CHECK(t.refusal(with_write(op, op.writes.size() - 1, kNone)) == "");
    CHECK_THAT(t.refusal(with_write(op, 0, t.run({600}))), Contains("600 elements of f32"));
    CHECK_THAT(t.refusal(with_write(op, 1, t.buffer({600}))), Contains("600 elements of u8"));
    CHECK_THAT(t.refusal(with_write(op, 2, t.buffer({2}))), Contains("3 elements of f32"));
    CHECK_THAT(t.refusal(with_write(op, 2, kNone)), Contains("output 2 is absent"));
    CHECK_THAT(t.refusal(op_of(kind, slots + 1)), Contains("operands, expected"));
  }
}

TEST_CASE("sgd has a momentum or none") {
  OneOp t(DType::bf16);
  Instruction op{.op = OpKind::sgd,
                 .attrs = SgdAttrs{.momentum = 0.9f},
                 .reads = {t.buffer({12})},
                 .writes = {t.buffer({12}), t.buffer({12}), t.run({12})}};
  CHECK(t.refusal(op) == "");
  CHECK(t.refusal(with_write(op, 1, kNone)) == "");
  CHECK_THAT(t.refusal(with_write(op, 1, t.buffer({11}))), Contains("12 elements of f32"));
  CHECK_THAT(t.refusal(with_write(op, 2, t.buffer({12}))), Contains("12 elements of bf16"));
  op.writes.push_back(t.run({12}));
  CHECK_THAT(t.refusal(op), Contains("writes 4 operands, expected 1 to 3"));
}

TEST_CASE("adagrad and lion have one state") {
  OneOp t(DType::bf16);
  for (const OpKind kind : {OpKind::adagrad, OpKind::lion}) {
    Instruction op{.op = kind,
                   .reads = {t.buffer({12})},
                   .writes = {t.buffer({12}), t.buffer({12}), t.run({12})}};
    CHECK(t.refusal(op) == "");
    CHECK(t.refusal(with_write(op, 2, kNone)) == "");
    CHECK_THAT(t.refusal(with_write(op, 1, t.run({12}))), Contains("12 elements of f32"));
    CHECK_THAT(t.refusal(with_write(op, 2, t.buffer({12}))), Contains("12 elements of bf16"));
    op.writes.push_back(t.run({12}));
    CHECK_THAT(t.refusal(op), Contains("writes 4 operands, expected 1 to 3"));
  }
}

TEST_CASE("lamb_direction reads the weights, lamb the square sums of its parameter") {
  OneOp t(DType::bf16);
  const Instruction direction{.op = OpKind::lamb_direction,
                              .reads = {t.buffer({12}), t.buffer({12})},
                              .writes = {t.buffer({12}), t.buffer({12}), t.buffer({12})}};
  CHECK(t.refusal(direction) == "");
  CHECK(t.refusal(with_read(direction, 0, t.run({12}))) == "");
  CHECK_THAT(t.refusal(with_read(direction, 1, t.run({12}))), Contains("12 elements of f32"));
  CHECK_THAT(t.refusal(with_write(direction, 2, t.buffer({11}))), Contains("12 elements of f32"));
  Instruction op{.op = OpKind::lamb,
                 .attrs = LambAttrs{.parameter = 2, .parameters = 3},
                 .reads = {t.buffer({12}), t.buffer({24}, DType::f64)},
                 .writes = {t.buffer({12}), t.run({12})}};
  CHECK(t.refusal(op) == "");
  CHECK(t.refusal(with_write(op, 1, kNone)) == "");
  CHECK_THAT(t.refusal(with_read(op, 1, t.buffer({8}, DType::f64))), Contains("square sums"));
  CHECK_THAT(t.refusal(with_read(op, 1, t.buffer({24}))), Contains("square sums"));
  op.attrs = LambAttrs{.parameter = 3, .parameters = 3};
  CHECK_THAT(t.refusal(op), Contains("square sums"));
}

TEST_CASE("Muon's ops: a momentum, a whole matrix, a step") {
  OneOp t(DType::bf16);
  const Instruction momentum{.op = OpKind::muon_momentum,
                             .reads = {t.run({12})},
                             .writes = {t.buffer({12}), t.buffer({12})}};
  CHECK(t.refusal(momentum) == "");
  CHECK_THAT(t.refusal(with_read(momentum, 0, t.buffer({12}, DType::f16))),
             Contains("a sum is f32"));
  CHECK_THAT(t.refusal(with_write(momentum, 1, t.buffer({11}))), Contains("12 elements of f32"));
  const BufferId matrix = t.buffer({3, 4});
  const Instruction whole{
      .op = OpKind::orthogonalize, .reads = {matrix}, .writes = {t.buffer({3, 4})}};
  CHECK(t.refusal(whole) == "");
  CHECK(t.refusal(with_write(whole, 0, matrix)) == "");
  CHECK(cost_of(t.program, whole).flops == 5 * (4 * 9 * 4 + 2 * 27));
  CHECK_THAT(t.refusal(with_read(whole, 0, t.buffer({12}))), Contains("a matrix"));
  CHECK_THAT(t.refusal(with_write(whole, 0, t.buffer({4, 3}))), Contains("x's shape"));
  const Instruction step{
      .op = OpKind::muon, .reads = {t.buffer({12})}, .writes = {t.buffer({12}), t.run({12})}};
  CHECK(t.refusal(step) == "");
  CHECK(t.refusal(with_write(step, 1, kNone)) == "");
  CHECK_THAT(t.refusal(with_read(step, 0, t.run({12}))), Contains("12 elements of f32"));
  CHECK_THAT(t.refusal(with_write(step, 1, t.buffer({12}))), Contains("12 elements of bf16"));
}

TEST_CASE("an optimizer takes no attributes of the other one") {
  OneOp t;
  const Instruction op{.op = OpKind::adam,
                       .attrs = SgdAttrs{},
                       .reads = {t.buffer({12})},
                       .writes = {t.buffer({12}), t.buffer({12}), t.buffer({12}), kNone}};
  CHECK_THAT(t.refusal(op), Contains("adam came with the attributes of another op"));
}
