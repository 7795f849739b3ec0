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

TEST_CASE("embed and its gradients take a part of the rows of a micro-batch") {
  OneOp t;
  const auto part = [](int64_t first, int64_t all) {
    return EmbedAttrs{.seq_len = 5, .part = {first, all}};
  };
  const Instruction op{
      .op = OpKind::embed,
      .attrs = part(3, 10),
      .reads = {t.buffer({4}, DType::i32), t.parameter({7, 6}), t.parameter({5, 6})},
      .writes = {t.run({4, 6})}};
  CHECK(t.refusal(op) == "");
  CHECK(t.refusal(with_attrs(op, part(6, 10))) == "");
  CHECK_THAT(t.refusal(with_attrs(op, part(7, 10))), Contains("divide into samples"));
  CHECK_THAT(t.refusal(with_attrs(op, part(-1, 10))), Contains("divide into samples"));
  CHECK_THAT(t.refusal(with_attrs(op, part(3, 11))), Contains("divide into samples"));
  CHECK_THAT(t.refusal(with_attrs(op, part(0, 0))), Contains("divide into samples"));
  CHECK(t.backward_ops(op) == std::vector<std::string>{"embed_token_grad", "embed_position_grad"});
  CHECK(t.program.instructions[1].attrs == op.attrs);
}

TEST_CASE("embed of a part of the tokens has a table with as many rows, and adds no positions") {
  OneOp t;
  const auto tokens = [](int64_t count, int64_t first) {
    return EmbedAttrs{.seq_len = 5, .tokens = count, .first_token = first};
  };
  const Instruction op{.op = OpKind::embed,
                       .attrs = tokens(6, 14),
                       .reads = {t.buffer({10}, DType::i32), t.parameter({7, 6})},
                       .writes = {t.run({10, 6})}};
  CHECK(t.refusal(op) == "");
  CHECK_THAT(t.refusal(with_attrs(op, tokens(8, 14))), Contains("fewer rows than tokens"));
  CHECK_THAT(t.refusal(with_attrs(op, tokens(-1, 14))), Contains("fewer rows than tokens"));
  CHECK_THAT(t.refusal(with_attrs(op, tokens(6, -1))), Contains("fewer rows than tokens"));
  Instruction with_positions = op;
  with_positions.reads.push_back(t.parameter({5, 6}));
  CHECK_THAT(t.refusal(with_positions), Contains("positions are not added"));
  CHECK(t.backward_ops(op) == std::vector<std::string>{"embed_token_grad"});
  const Instruction grad = t.program.instructions[0];
  CHECK(grad.attrs == op.attrs);
  CHECK_THAT(t.refusal(with_attrs(grad, tokens(8, 14))), Contains("fewer rows than tokens"));
}

TEST_CASE(
    "add_rows takes rows and a table of positions, of one width, and may overwrite the rows") {
  for (const DType run : {DType::f32, DType::bf16}) {
    OneOp t(run);
    const Instruction op{.op = OpKind::add_rows,
                         .attrs = EmbedAttrs{5},
                         .reads = {t.run({10, 6}), t.run({5, 6})},
                         .writes = {t.run({10, 6})}};
    CHECK(name_of(op.op) == "add_rows");
    CHECK(t.refusal(op) == "");
    CHECK(t.refusal(with_read(op, 1, t.run({9, 6}))) == "");  // more positions than are used
    CHECK(t.refusal(with_write(op, 0, op.reads[0])) == "");
    CHECK_THAT(t.refusal(with_write(op, 0, op.reads[1])), Contains("60 elements"));
    CHECK_THAT(t.refusal(with_read(op, 1, t.run({4, 6}))), Contains("too few positions"));
    CHECK_THAT(t.refusal(with_read(op, 1, t.run({5, 3}))), Contains("too few positions"));
    CHECK_THAT(t.refusal(with_read(op, 1, t.buffer({5, 6}, DType::f16))),
               Contains("too few positions"));
    CHECK_THAT(t.refusal(with_read(op, 0, t.buffer({10, 6}, DType::i32))),
               Contains("values of f32, bf16 or f16"));
    CHECK_THAT(t.refusal(with_write(op, 0, t.run({9, 6}))), Contains("60 elements"));
    CHECK_THAT(t.refusal(with_attrs(op, EmbedAttrs{4})), Contains("divide into samples"));
    CHECK_THAT(t.refusal(with_attrs(op, {})), Contains("divide into samples"));
    CHECK(t.refusal(with_attrs(op, EmbedAttrs{.seq_len = 5, .part = {3, 15}})) == "");
    CHECK_THAT(t.refusal(with_attrs(op, EmbedAttrs{.seq_len = 5, .part = {6, 15}})),
               Contains("divide into samples"));
    Instruction documents = op;
    documents.reads.push_back(t.buffer({10}, DType::i32));
    CHECK(t.refusal(documents) == "");
    CHECK_THAT(t.refusal(with_read(documents, 2, t.buffer({5}, DType::i32))),
               Contains("10 elements of i32"));
    CHECK(rule_of(op.op).repeatable);
    CHECK(cost_of(t.program, op).flops == 0);
  }
}

TEST_CASE("the gradient passes add_rows as it is, and is added up for the table") {
  OneOp t;
  const BufferId documents = t.buffer({10}, DType::i32);
  Instruction op{.op = OpKind::add_rows,
                 .attrs = EmbedAttrs{.seq_len = 5, .part = {3, 15}},
                 .reads = {t.parameter({10, 6}), t.parameter({5, 6}), documents},
                 .writes = {t.run({10, 6})}};
  Gradients g(t.program);
  const BufferId d_y = g.like(op.writes[0]);
  g.contribute(op.writes[0], d_y);
  rule_of(op.op).backward(op, g);
  CHECK(g.of(op.reads[0]) == d_y);
  REQUIRE(t.program.instructions.size() == 1);
  const Instruction& positions = t.program.instructions[0];
  CHECK(positions.op == OpKind::embed_position_grad);
  CHECK(positions.attrs == op.attrs);
  CHECK(positions.reads == std::vector<BufferId>{d_y, documents});
  CHECK(t.refusal(positions) == "");

  OneOp one;
  op = {.op = OpKind::add_rows,
        .attrs = EmbedAttrs{.seq_len = 1},
        .reads = {one.parameter({10, 6}), one.parameter({1, 6})},
        .writes = {one.run({10, 6})}};
  CHECK(one.refusal(op) == "");
  CHECK(one.backward_ops(op) == std::vector<std::string>{"sum_rows"});
}
