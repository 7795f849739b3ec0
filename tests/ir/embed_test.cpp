#include "tests/ir/one_op.h"

using namespace dstrain;
using Catch::Contains;

TEST_CASE("embed takes ids, a token table and perhaps positions, all of one width") {
  for (const DType run : {DType::f32, DType::bf16}) {
    OneOp t(run);
    const BufferId ids = t.buffer({2, 5}, DType::i32);
    const Instruction op{.op = OpKind::embed,
                         .attrs = EmbedAttrs{5},
                         .reads = {ids, t.run({7, 6}), t.run({5, 6})},
                         .writes = {t.run({10, 6})}};
    CHECK(t.refusal(op) == "");
    CHECK(t.refusal(with_read(op, 2, kNone)) == "");
    CHECK(t.refusal(with_read(op, 2, t.run({9, 6}))) == "");  // more positions than are used
    CHECK_THAT(t.refusal(with_read(op, 0, t.buffer({10}))), Contains("10 elements of i32"));
    CHECK_THAT(t.refusal(with_read(op, 1, t.buffer({7, 6}, DType::i32))),
               Contains("values of f32, bf16 or f16"));
    CHECK_THAT(t.refusal(with_read(op, 2, t.run({4, 6}))), Contains("too few positions"));
    CHECK_THAT(t.refusal(with_read(op, 2, t.run({5, 3}))), Contains("too few positions"));
    CHECK_THAT(t.refusal(with_write(op, 0, t.run({9, 6}))), Contains("60 elements"));
    CHECK_THAT(t.refusal(with_attrs(op, EmbedAttrs{4})), Contains("divide into samples"));
    CHECK_THAT(t.refusal(with_attrs(op, {})), Contains("divide into samples"));
    CHECK(cost_of(t.program, op).flops == 0);
  }
}

TEST_CASE("embed's backward adds rows up for each of its tables") {
  OneOp t;
  Instruction op{.op = OpKind::embed,
                 .attrs = EmbedAttrs{5},
                 .reads = {t.buffer({10}, DType::i32), t.parameter({7, 6}), t.parameter({5, 6})},
                 .writes = {t.run({10, 6})}};
  CHECK(t.backward_ops(op) == std::vector<std::string>{"embed_token_grad", "embed_position_grad"});
  OneOp bare;
  op.reads = {bare.buffer({10}, DType::i32), bare.parameter({7, 6}), kNone};
  op.writes = {bare.run({10, 6})};
  CHECK(bare.backward_ops(op) == std::vector<std::string>{"embed_token_grad"});
}

TEST_CASE("the gradients of embed's tables are f32, of the tables' shapes") {
  OneOp t(DType::bf16);
  const BufferId d_x = t.run({10, 6}), ids = t.buffer({10}, DType::i32);
  const Instruction token{
      .op = OpKind::embed_token_grad, .reads = {d_x, ids}, .writes = {t.buffer({7, 6})}};
  CHECK(t.refusal(token) == "");
  CHECK_THAT(t.refusal(with_write(token, 0, t.run({7, 6}))), Contains("are f32"));
  CHECK_THAT(t.refusal(with_write(token, 0, t.buffer({7, 5}))), Contains("50 elements of bf16"));
  CHECK_THAT(t.refusal(with_read(token, 1, t.buffer({10}))), Contains("ids are i32"));
  const Instruction position{.op = OpKind::embed_position_grad,
                             .attrs = EmbedAttrs{5},
                             .reads = {d_x},
                             .writes = {t.buffer({5, 6})}};
  CHECK(t.refusal(position) == "");
  CHECK(t.refusal(with_write(position, 0, t.buffer({9, 6}))) ==
        "");  // more positions than are used
  CHECK_THAT(t.refusal(with_write(position, 0, t.buffer({4, 6}))), Contains("30 elements of f32"));
  CHECK_THAT(t.refusal(with_write(position, 0, t.run({5, 6}))), Contains("30 elements of f32"));
}

TEST_CASE("embed reads documents behind positions, and so does the gradient of these") {
  OneOp t;
  const BufferId documents = t.buffer({2, 5}, DType::i32);
  const Instruction op{
      .op = OpKind::embed,
      .attrs = EmbedAttrs{5},
      .reads = {t.buffer({10}, DType::i32), t.parameter({7, 6}), t.parameter({5, 6}), documents},
      .writes = {t.run({10, 6})}};
  CHECK(t.refusal(op) == "");
  CHECK_THAT(t.refusal(with_read(op, 3, t.buffer({10}))), Contains("10 elements of i32"));
  CHECK_THAT(t.refusal(with_read(op, 3, t.buffer({5}, DType::i32))),
             Contains("10 elements of i32"));
  CHECK_THAT(t.refusal(with_read(op, 2, kNone)), Contains("documents without positions"));
  CHECK(t.backward_ops(op) == std::vector<std::string>{"embed_token_grad", "embed_position_grad"});
  const Instruction& grad = t.program.instructions[1];
  CHECK(grad.reads.back() == documents);
  CHECK_THAT(t.refusal(with_read(grad, 1, t.buffer({10}))), Contains("10 elements of i32"));
}
