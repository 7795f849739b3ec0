#include "tests/ir/one_op.h"

using namespace dstrain;
using Catch::Contains;

TEST_CASE("load_batch writes any number of inputs, which are integers and floats") {
  OneOp t;
  const Instruction op{.op = OpKind::load_batch,
                       .writes = {t.buffer({10}, DType::i32), t.buffer({10}, DType::i32)}};
  CHECK(t.refusal(op) == "");
  CHECK(t.refusal({.op = OpKind::load_batch, .writes = {op.writes[0]}}) == "");
  CHECK(t.refusal(with_write(op, 1, t.buffer({10, 2, 3}))) == "");
  CHECK_THAT(t.refusal(with_write(op, 1, kNone)), Contains("output 1 is absent"));
  CHECK_THAT(t.refusal(with_write(op, 0, t.buffer({10}, DType::u8))), Contains("i32 or f32"));
  CHECK_THAT(t.refusal({.op = OpKind::load_batch}), Contains("writes 0 operands"));
}

TEST_CASE("zero writes one buffer and reads none") {
  OneOp t;
  Instruction op{.op = OpKind::zero, .writes = {t.buffer({12})}};
  CHECK(t.refusal(op) == "");
  op.reads = {t.buffer({12})};
  CHECK_THAT(t.refusal(op), Contains("reads 1 operands"));
}

TEST_CASE("the executor does the beginning and the end of a step itself") {
  for (const OpKind op :
       {OpKind::load_batch, OpKind::zero, OpKind::reduce_counts, OpKind::finish_gradients}) {
    CHECK(rule_of(op).done_by == DoneBy::executor);
    CHECK(rule_of(op).backward == nullptr);
    CHECK(rule_of(op).begins_step == (op == OpKind::load_batch || op == OpKind::reduce_counts));
  }
  CHECK(rule_of(OpKind::load_batch).queue == Queue::host);
  CHECK(rule_of(OpKind::zero).queue == Queue::compute);
  CHECK(rule_of(OpKind::reduce_counts).queue == Queue::comm);
  CHECK(rule_of(OpKind::finish_gradients).queue == Queue::comm);
}
