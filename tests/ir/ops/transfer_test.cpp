#include "tests/ir/one_op.h"

using namespace dstrain;
using Catch::Contains;

TEST_CASE("a copy goes between the device and the host, and changes nothing") {
  OneOp t;
  const BufferId here = t.buffer({12}), there = t.buffer({12}), other = t.buffer({11});
  t.program.at(there).space = Space::host;
  const Instruction op{.op = OpKind::copy, .reads = {here}, .writes = {there}};
  CHECK(t.refusal(op) == "");
  CHECK(t.refusal({.op = OpKind::copy, .reads = {there}, .writes = {here}}) == "");
  CHECK_THAT(t.refusal(with_write(op, 0, t.buffer({12}))), Contains("between the device and"));
  t.program.at(other).space = Space::host;
  CHECK_THAT(t.refusal(with_write(op, 0, other)), Contains("element counts differ"));
  CHECK(is_posted(OpKind::copy));
  CHECK_FALSE(is_collective(OpKind::copy));
  CHECK_FALSE(has_kernel(OpKind::copy));
  CHECK(queue_of(t.program, op) == Queue::copy);
}

TEST_CASE("swaps go between disk and the host, and keep no order") {
  OneOp t;
  const BufferId here = t.buffer({12}), disk = t.buffer({12}), device = t.buffer({12});
  t.program.at(here).space = Space::host;
  t.program.at(disk).space = Space::disk;
  const Instruction in{.op = OpKind::swap_in, .reads = {disk}, .writes = {here}};
  const Instruction out{.op = OpKind::swap_out, .reads = {here}, .writes = {disk}};
  for (const Instruction& op : {in, out}) {
    CHECK(t.refusal(op) == "");
    CHECK(is_posted(op.op));
    CHECK_FALSE(is_collective(op.op));
    CHECK_FALSE(keeps_order(op.op));
    CHECK(queue_of(t.program, op) == Queue::io);
  }
  CHECK(keeps_order(OpKind::copy));
  CHECK_THAT(t.refusal(with_write(in, 0, device)), Contains("goes from disk to the host"));
  CHECK_THAT(t.refusal(with_read(out, 0, device)), Contains("goes from the host to disk"));
  CHECK_THAT(t.refusal(with_read(in, 0, here)), Contains("goes from disk to the host"));
  CHECK_THAT(t.refusal({.op = OpKind::copy, .reads = {disk}, .writes = {device}}),
             Contains("between the device and the host"));
}

TEST_CASE("a kernel runs where its operands are, and they are all in one place") {
  OneOp t;
  const BufferId sum = t.buffer({1}, DType::f64), x = t.buffer({12});
  Instruction op{.op = OpKind::sum_squares, .reads = {x}, .writes = {sum}};
  CHECK_FALSE(runs_on_host(t.program, op));
  t.program.at(x).space = Space::host;
  CHECK_THAT(t.refusal(op), Contains("has an operand in device memory"));
  t.program.at(sum).space = Space::host;
  CHECK(t.refusal(op) == "");
  CHECK(runs_on_host(t.program, op));
  CHECK(queue_of(t.program, op) == Queue::host);
  const BufferId part = t.program.view(x, 4, 4);  // the root's space counts
  t.program.at(part).space = Space::device;
  op.reads = {part};
  CHECK(t.refusal(op) == "");
}

TEST_CASE("collectives work on the device's memory") {
  OneOp t;
  const BufferId x = t.buffer({12});
  t.program.at(x).space = Space::host;
  CHECK_THAT(t.refusal({.op = OpKind::all_reduce, .reads = {x}, .writes = {x}}),
             Contains("has an operand in host memory"));
}
