#include <cmath>

#include "tests/ir/one_op.h"

using namespace dstrain;
using Catch::Contains;

namespace {

// Two samples of 5 tokens, 12 channels in 3 heads.
const AttentionAttrs kThreeHeads{.dropout = 0.1f, .site = 2, .heads = 3, .seq_len = 5};

Instruction attention_op(OneOp& t, BufferId qkv) {
  return {.op = OpKind::attention,
          .attrs = kThreeHeads,
          .reads = {qkv},
          .writes = {t.run({10, 12}), t.buffer({2, 3, 5})}};
}

}  // namespace

TEST_CASE("attention's channels divide into heads and its rows into samples") {
  OneOp t(DType::bf16);
  const Instruction op = attention_op(t, t.run({10, 36}));
  CHECK(t.refusal(op) == "");
  CHECK_THAT(t.refusal(with_attrs(op, AttentionAttrs{.heads = 5, .seq_len = 5})),
             Contains("into heads"));
  CHECK_THAT(t.refusal(with_attrs(op, {})), Contains("into heads"));
  CHECK_THAT(t.refusal(with_attrs(op, AttentionAttrs{.heads = 3, .seq_len = 4})),
             Contains("into samples"));
  CHECK_THAT(t.refusal(with_read(op, 0, t.run({10, 24}))), Contains("360 elements of bf16"));
  CHECK_THAT(t.refusal(with_write(op, 1, t.buffer({2, 5}))), Contains("30 elements of f32"));
  CHECK_THAT(t.refusal(with_write(op, 1, t.run({2, 3, 5}))), Contains("30 elements of f32"));
}

TEST_CASE("attention counts the causal half of two products, its gradient of five") {
  OneOp t;
  const Instruction op = attention_op(t, t.run({10, 36}));
  CHECK(cost_of(t.program, op).flops == 2.0 * 10 * 12 * 5);
  const Instruction grad{.op = OpKind::attention_grad,
                         .attrs = kThreeHeads,
                         .reads = {t.run({10, 12}), op.reads[0], op.writes[0], op.writes[1]},
                         .writes = {t.run({10, 36})}};
  CHECK(t.refusal(grad) == "");
  CHECK(cost_of(t.program, grad).flops == 5.0 * 10 * 12 * 5);
  CHECK_THAT(t.refusal(with_read(grad, 0, t.run({10, 36}))), Contains("120 elements"));
  CHECK_THAT(t.refusal(with_read(grad, 3, t.buffer({10}))), Contains("30 elements"));
  CHECK_THAT(t.refusal(with_write(grad, 0, t.run({10, 12}))), Contains("360 elements"));
  CHECK_THAT(t.refusal(with_write(grad, 0, op.reads[0])), Contains("overlaps"));
}

TEST_CASE("attention's backward reads what the forward pass wrote, with the same dropout") {
  OneOp t;
  const Instruction op = attention_op(t, t.parameter({10, 36}));
  CHECK(t.backward_ops(op) == std::vector<std::string>{"attention_grad"});
  const Instruction& grad = t.program.instructions[0];
  CHECK(grad.reads[1] == op.reads[0]);
  CHECK(grad.reads[2] == op.writes[0]);
  CHECK(grad.reads[3] == op.writes[1]);
  CHECK(grad.attrs == op.attrs);
  CHECK(t.backward_ops(attention_op(t, t.run({10, 36}))).empty());
}

namespace {

// Two samples of 5 tokens: 6 heads of queries with 4 channels each, 2 heads of keys and values.
AttentionAttrs two_of_six() {
  return {.heads = 6, .seq_len = 5, .kv_heads = 2, .window = 3, .scale = 0.25};
}

Instruction grouped_op(OneOp& t, BufferId q, BufferId k, BufferId v) {
  return {.op = OpKind::attention,
          .attrs = two_of_six(),
          .reads = {q, k, v},
          .writes = {t.run({10, 24}), t.buffer({2, 6, 5})}};
}

Instruction grad_of(OneOp& t, const Instruction& op) {
  return {
      .op = OpKind::attention_grad,
      .attrs = op.attrs,
      .reads = {t.run({10, 24}), op.reads[0], op.reads[1], op.reads[2], op.writes[0], op.writes[1]},
      .writes = {t.run({10, 24}), t.run({10, 8}), t.run({10, 8})}};
}

}  // namespace

TEST_CASE("attention takes queries, keys and values apart, with fewer heads of keys") {
  OneOp t(DType::bf16);
  const Instruction op = grouped_op(t, t.run({10, 24}), t.run({10, 8}), t.run({10, 8}));
  CHECK(t.refusal(op) == "");
  CHECK_THAT(t.refusal(with_read(op, 0, t.run({10, 8}))), Contains("240 elements of bf16"));
  CHECK_THAT(t.refusal(with_read(op, 1, t.run({10, 24}))), Contains("80 elements of bf16"));
  CHECK_THAT(t.refusal(with_read(op, 2, t.run({10, 12}))), Contains("80 elements of bf16"));
  CHECK_THAT(t.refusal(with_write(op, 1, t.buffer({2, 2, 5}))), Contains("60 elements of f32"));
  Instruction two = op;
  two.reads.pop_back();
  CHECK_THAT(t.refusal(two), Contains("must have 400 elements"));  // one operand, and documents
  two.reads = {};
  CHECK_THAT(t.refusal(two), Contains("reads 0 operands, expected 1 to 2"));
  Instruction packed = op;
  packed.reads = {t.run({10, 40})};
  CHECK(t.refusal(packed) == "");

  const auto with = [&](const auto& change) {
    AttentionAttrs attrs = two_of_six();
    change(attrs);
    return t.refusal(with_attrs(op, attrs));
  };
  CHECK_THAT(with([](AttentionAttrs& a) { a.kv_heads = 4; }), Contains("into heads of keys"));
  CHECK_THAT(with([](AttentionAttrs& a) { a.kv_heads = -2; }), Contains("into heads of keys"));
  CHECK_THAT(with([](AttentionAttrs& a) { a.kv_heads = 0; }), Contains("240 elements"));
  CHECK_THAT(with([](AttentionAttrs& a) { a.window = -1; }), Contains("a window has"));
  CHECK_THAT(with([](AttentionAttrs& a) { a.scale = -1; }), Contains("scores are scaled by"));
  CHECK_THAT(with([](AttentionAttrs& a) { a.scale = NAN; }), Contains("scores are scaled by"));
  CHECK_THAT(with([](AttentionAttrs& a) { a.softcap = -1; }), Contains("scores have a cap"));
  CHECK_THAT(with([](AttentionAttrs& a) { a.softcap = NAN; }), Contains("scores have a cap"));

  const Instruction grad = grad_of(t, op);
  CHECK(t.refusal(grad) == "");
  CHECK_THAT(t.refusal(with_read(grad, 2, t.run({10, 24}))), Contains("80 elements"));
  CHECK_THAT(t.refusal(with_write(grad, 1, t.run({10, 24}))), Contains("80 elements"));
  CHECK_THAT(t.refusal(with_write(grad, 2, op.reads[1])), Contains("overlaps"));
  Instruction one = grad;
  one.writes.pop_back();
  CHECK_THAT(t.refusal(one), Contains("writes 2 operands, expected 3 to 3"));
}

TEST_CASE("attention's FLOPs count the keys in the window, and all heads of queries") {
  OneOp t;
  const Instruction op = grouped_op(t, t.run({10, 24}), t.run({10, 8}), t.run({10, 8}));
  const auto flops = [&](int64_t window) {
    AttentionAttrs attrs = two_of_six();
    attrs.window = window;
    const Instruction changed = with_attrs(op, attrs);
    const double forward = cost_of(t.program, changed).flops;
    CHECK(cost_of(t.program, grad_of(t, changed)).flops == Approx(forward * 5 / 2));
    return forward;
  };
  CHECK(flops(0) == 2.0 * 10 * 24 * 5);
  CHECK(flops(5) == flops(0));
  CHECK(flops(9) == flops(0));
  // A head has 25 / 2 pairs. The window leaves 3 keys of each of 5 queries, without the triangle of 9 / 2 before the first.
  CHECK(flops(3) == Approx(flops(0) * (15 - 4.5) / 12.5));
}

TEST_CASE("attention that is not causal counts all pairs, and has neither window nor documents") {
  OneOp t;
  const Instruction causal = attention_op(t, t.run({10, 36}));
  AttentionAttrs attrs = kThreeHeads;
  attrs.causal = false;
  const Instruction op = with_attrs(causal, attrs);
  CHECK(t.refusal(op) == "");
  CHECK(cost_of(t.program, op).flops == 2.0 * 10 * 12 * 2 * 5);
  Instruction grad{.op = OpKind::attention_grad,
                   .attrs = attrs,
                   .reads = {t.run({10, 12}), op.reads[0], op.writes[0], op.writes[1]},
                   .writes = {t.run({10, 36})}};
  CHECK(t.refusal(grad) == "");
  CHECK(cost_of(t.program, grad).flops == 5.0 * 10 * 12 * 2 * 5);
  for (Instruction refused : {op, grad}) {
    AttentionAttrs of_window = attrs;
    of_window.window = 3;
    CHECK_THAT(t.refusal(with_attrs(refused, of_window)), Contains("expected window 0"));
    refused.reads.push_back(t.buffer({10}, DType::i32));
    CHECK_THAT(t.refusal(refused), Contains("documents are of causal attention"));
  }
  const Instruction trained = with_attrs(attention_op(t, t.parameter({10, 36})), attrs);
  CHECK(t.backward_ops(trained) == std::vector<std::string>{"attention_grad"});
  CHECK(t.program.instructions[0].attrs == trained.attrs);
}

TEST_CASE("attention's gradients of queries, keys and values come from one op") {
  OneOp t;
  const BufferId q = t.run({10, 24}), k = t.parameter({10, 8}), v = t.parameter({10, 8});
  const Instruction op = grouped_op(t, q, k, v);
  CHECK(t.backward_ops(op) == std::vector<std::string>{"attention_grad"});
  const Instruction& grad = t.program.instructions[0];
  CHECK(std::vector<BufferId>(grad.reads.begin() + 1, grad.reads.end()) ==
        std::vector<BufferId>{q, k, v, op.writes[0], op.writes[1]});
  CHECK(t.program.at(grad.writes[0]).shape == t.program.at(q).shape);
  CHECK(t.program.at(grad.writes[2]).shape == t.program.at(v).shape);
  CHECK(grad.attrs == op.attrs);
  // Nothing needs a gradient of q, which is no parameter.
  Gradients gradients(t.program);
  gradients.mark(op);
  gradients.contribute(op.writes[0], gradients.like(op.writes[0]));
  rule_of(op.op).backward(op, gradients);
  CHECK(gradients.of(q) == kNone);
  CHECK(gradients.of(k) != kNone);
  CHECK(gradients.of(v) != kNone);
  CHECK(t.backward_ops(grouped_op(t, q, t.run({10, 8}), t.run({10, 8}))).empty());
}

TEST_CASE("attention reads documents behind everything else, and its gradient reads them too") {
  OneOp t(DType::bf16);
  const BufferId documents = t.buffer({2, 5}, DType::i32);
  Instruction apart =
      grouped_op(t, t.parameter({10, 24}), t.parameter({10, 8}), t.parameter({10, 8}));
  apart.reads.push_back(documents);
  Instruction packed = attention_op(t, t.parameter({10, 36}));
  packed.reads.push_back(documents);
  for (const Instruction& op : {apart, packed}) {
    const size_t last = op.reads.size() - 1;
    CHECK(t.refusal(op) == "");
    CHECK_THAT(t.refusal(with_read(op, last, t.buffer({9}, DType::i32))),
               Contains("10 elements of i32"));
    CHECK_THAT(t.refusal(with_read(op, last, t.buffer({10}))), Contains("10 elements of i32"));
    Instruction more = op;
    more.reads.push_back(documents);
    CHECK(!t.refusal(more).empty());
    CHECK(t.backward_ops(op) == std::vector<std::string>{"attention_grad"});
    const Instruction& grad = t.program.instructions[0];
    CHECK(grad.reads.size() == op.reads.size() + 3);
    CHECK(grad.reads.back() == documents);
    CHECK(grad.writes.size() == last);
    CHECK_THAT(t.refusal(with_read(grad, grad.reads.size() - 1, t.buffer({10}))),
               Contains("10 elements of i32"));
  }
}
