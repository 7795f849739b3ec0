#include "tests/ir/one_op.h"

using namespace dstrain;
using Catch::Contains;

TEST_CASE("all_reduce works in place") {
  OneOp t;
  const BufferId x = t.buffer({12});
  const Instruction op{.op = OpKind::all_reduce, .reads = {x}, .writes = {x}};
  CHECK(t.refusal(op) == "");
  CHECK_THAT(t.refusal(with_write(op, 0, t.buffer({12}))), Contains("in place"));
}

TEST_CASE("the slices of reduce_scatter and all_gather divide their wholes") {
  OneOp t(DType::bf16);
  const BufferId whole = t.run({12}), slice = t.run({4}), odd = t.run({5});
  const Instruction scatter{.op = OpKind::reduce_scatter, .reads = {whole}, .writes = {slice}};
  CHECK(t.refusal(scatter) == "");
  CHECK_THAT(t.refusal(with_write(scatter, 0, odd)), Contains("does not divide the whole"));
  CHECK_THAT(t.refusal(with_write(scatter, 0, t.buffer({4}))), Contains("does not divide"));
  const Instruction gather{.op = OpKind::all_gather, .reads = {slice}, .writes = {whole}};
  CHECK(t.refusal(gather) == "");
  CHECK(t.refusal(with_read(gather, 0, t.program.view(whole, 4, 4))) ==
        "");  // a part of its result
  CHECK_THAT(t.refusal(with_read(gather, 0, odd)), Contains("does not divide the whole"));
}

TEST_CASE("all_to_all takes as much as it gives, to another buffer") {
  OneOp t(DType::bf16);
  const BufferId x = t.buffer({12}, DType::u8);
  const Instruction op{
      .op = OpKind::all_to_all, .reads = {x}, .writes = {t.buffer({12}, DType::u8)}};
  CHECK(t.refusal(op) == "");
  CHECK_THAT(t.refusal(with_write(op, 0, t.buffer({8}, DType::u8))), Contains("the same slices"));
  CHECK_THAT(t.refusal(with_write(op, 0, x)), Contains("overlaps"));
}

TEST_CASE("collectives run beside computation; an all-reduce passes a ring twice") {
  for (const auto& [op, passes] : {std::pair{OpKind::all_reduce, 2},
                                   {OpKind::reduce_scatter, 1},
                                   {OpKind::all_gather, 1},
                                   {OpKind::all_to_all, 1}}) {
    CHECK(is_collective(op));
    CHECK_FALSE(has_kernel(op));
    CHECK(rule_of(op).queue == Queue::comm);
    CHECK(rule_of(op).ring_passes == passes);
  }
}

TEST_CASE("a message has one operand: the sender reads it, the receiver writes it") {
  OneOp t(DType::bf16);
  const BufferId x = t.run({12});
  const Instruction send{.op = OpKind::send, .reads = {x}, .channel = 1};
  const Instruction recv{.op = OpKind::recv, .writes = {x}, .channel = 1};
  CHECK(t.refusal(send) == "");
  CHECK(t.refusal(recv) == "");
  CHECK(t.refusal({.op = OpKind::send, .reads = {x}, .writes = {x}}) != "");
  CHECK(t.refusal({.op = OpKind::recv, .reads = {x}, .writes = {x}}) != "");
  for (const OpKind op : {OpKind::send, OpKind::recv}) {
    CHECK(is_collective(op));
    CHECK_FALSE(has_kernel(op));
    CHECK(rule_of(op).queue == Queue::comm);
    CHECK(rule_of(op).ring_passes == 0);
  }
}

TEST_CASE("the gradient of a collective of activations takes the inverse way on the same channel") {
  for (const auto& [op, inverse, read, written] :
       {std::tuple{OpKind::all_gather, OpKind::reduce_scatter, 4, 12},
        {OpKind::reduce_scatter, OpKind::all_gather, 12, 4},
        {OpKind::all_to_all, OpKind::all_to_all, 12, 12}}) {
    INFO(name_of(op));
    OneOp t(DType::bf16);
    const Instruction forward{
        .op = op, .reads = {t.parameter({read})}, .writes = {t.run({written})}, .channel = 3};
    CHECK(t.backward_ops(forward) == std::vector<std::string>{std::string(name_of(inverse))});
    const Instruction& back = t.program.instructions[0];
    CHECK(back.channel == 3);
    CHECK(back.phase == Phase::backward);
    CHECK(t.program.at(back.reads[0]).shape.elements() == written);
    CHECK(t.program.at(back.writes[0]).shape.elements() == read);
    CHECK(t.backward_ops(with_read(forward, 0, t.run({read}))).empty());
  }
}
