#include "runtime/plan/proof/verify.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "runtime/core/error.h"
#include "runtime/plan/waits.h"
#include "tests/plan/plans.h"

using namespace dstrain;

TEST_CASE("verify finds bytes that are reused too early") {
  Plan plan = train_plan(small_job());
  verify(plan);
  // The saved attention output of block 0 moves onto a buffer of block 1.
  const BufferId saved = plan.program.find("blocks.0.att");
  const BufferId other = plan.program.find("blocks.1.qkv");
  REQUIRE(saved != kNone);
  REQUIRE(other != kNone);
  plan.address[static_cast<size_t>(saved)] = plan.address[static_cast<size_t>(other)];
  CHECK_THROWS_WITH(verify(plan), Catch::Contains("blocks.0.att") && Catch::Contains("reused"));
}

TEST_CASE("verify finds a read before its write") {
  Plan plan = train_plan(small_job());
  auto& order = plan.order;
  const auto is = [&](OpKind kind) {
    return [&, kind](const Issue& i) {
      return plan.program.instructions[static_cast<size_t>(i.instruction)].op == kind;
    };
  };
  order.erase(std::find_if(order.begin(), order.end(), is(OpKind::layer_norm)));
  CHECK_THROWS_WITH(verify(plan), Catch::Contains("linear of blocks.0") && Catch::Contains("ln1"));
}

TEST_CASE("verify finds a gradient that is added to what the last step left") {
  Plan plan = train_plan(small_job());
  verify(plan);
  for (Instruction& op : plan.program.instructions)
    if (op.op == OpKind::linear_weight_grad && op.accumulate == Accumulate::after_first_micro) {
      op.accumulate = Accumulate::always;
      break;
    }
  CHECK_THROWS_WITH(verify(plan), Catch::Contains("linear_weight_grad") &&
                                      Catch::Contains("before it is written"));
}

TEST_CASE("verify finds a use before its gather") {
  Plan plan = plan_of(sharded_job(3)).train;
  const size_t gather = issues_of(plan, OpKind::all_gather)[2];
  plan.order.erase(plan.order.begin() + static_cast<ptrdiff_t>(gather));
  order_communication(plan, false, false);
  CHECK_THROWS_WITH(verify(plan), Catch::Contains("before it is written"));
}

TEST_CASE("verify finds a use that does not wait for its gather") {
  Plan plan = plan_of(sharded_job(3)).train;
  const size_t gather = issues_of(plan, OpKind::all_gather)[2];
  int32_t complete = 0;
  for (size_t i = 0; i <= gather; ++i) complete = std::max(complete, plan.waits[i]);
  for (size_t i = gather + 1; i < plan.waits.size(); ++i) plan.waits[i] = complete;
  CHECK_THROWS_WITH(verify(plan), Catch::Contains("may be writing it"));
}

TEST_CASE("verify finds bytes that a peer may still be reading") {
  Plan plan = plan_of(sharded_job(2)).train;
  // Nothing waits any more for the first reduction: what comes next overwrites its source.
  const size_t sent = issues_of(plan, OpKind::reduce_scatter)[0];
  const int32_t before = plan.waits[sent];
  for (size_t i = sent + 1; i < plan.waits.size(); ++i) plan.waits[i] = before;
  CHECK_THROWS_AS(verify(plan), InternalError);
}

TEST_CASE("verify looks at every micro-batch") {
  Job job = sharded_job(3);
  job.batch.accumulation = 9;
  const Plan sound = plan_of(job).train;
  verify(sound);
  for (const OpKind kind : {OpKind::all_gather, OpKind::reduce_scatter})
    for (const size_t sent : issues_of(sound, kind)) {
      if (sound.order[sent].micro < 1) continue;
      CAPTURE(name_of(kind), sound.order[sent].micro, sent);
      Plan plan =
          sound;  // nothing of this micro-batch waits for the collective, but what comes after does
      for (size_t i = sent + 1; i < plan.waits.size(); ++i)
        if (plan.order[i].micro == plan.order[sent].micro) plan.waits[i] = plan.waits[sent];
      CHECK_THROWS_AS(verify(plan), InternalError);
    }
  for (const size_t product : issues_of(sound, OpKind::linear_input_grad)) {
    CAPTURE(sound.order[product].micro, product);
    Plan plan = sound;  // one micro-batch lacks an instruction
    plan.order.erase(plan.order.begin() + static_cast<ptrdiff_t>(product));
    plan.waits.erase(plan.waits.begin() + static_cast<ptrdiff_t>(product));
    CHECK_THROWS_WITH(verify(plan), Catch::Contains("before it is written"));
  }
  Plan plan = sound;  // one micro-batch's samples lie where another's do
  plan.address[static_cast<size_t>(plan.program.inputs[0].buffer)].stride = 0;
  CHECK_THROWS_WITH(verify(plan), Catch::Contains("reads"));
}

TEST_CASE("verify finds a wait for a collective that has not been started") {
  Plan plan = plan_of(sharded_job(1)).train;
  plan.waits[0] = 1;
  CHECK_THROWS_WITH(verify(plan), Catch::Contains("to come"));
}

TEST_CASE("verify looks at every micro-batch of a pipeline") {
  Job job = sharded_job(3, 6);
  job.pipeline.stages = 3;
  job.batch = {2 * 2 * 20, 2, 20};
  const int stage = GENERATE(0, 1, 2);
  const Plan sound = plan_of(job, 2 * stage).train;
  verify(sound);
  const auto channels = static_cast<size_t>(sound.channels);
  const auto micro_of = [&](size_t i) { return sound.order[i].micro; };
  // Nothing of this micro-batch waits for its message, but what comes after does.
  for (const size_t received : issues_of(sound, OpKind::recv)) {
    CAPTURE(stage, micro_of(received), received);
    const auto channel = static_cast<size_t>(op_at(sound, received).channel);
    Plan plan = sound;
    for (size_t i = received + 1; i < plan.order.size(); ++i)
      if (micro_of(i) == micro_of(received))
        plan.waits[i * channels + channel] = plan.waits[received * channels + channel];
    CHECK_THROWS_AS(verify(plan), InternalError);
  }
  for (const OpKind kind : {OpKind::linear_input_grad, OpKind::attention})
    for (const size_t lacking : issues_of(sound, kind)) {
      CAPTURE(stage, micro_of(lacking), lacking);
      Plan plan = sound;  // one micro-batch lacks an instruction
      plan.order.erase(plan.order.begin() + static_cast<ptrdiff_t>(lacking));
      const auto waits = plan.waits.begin() + static_cast<ptrdiff_t>(lacking * channels);
      plan.waits.erase(waits, waits + static_cast<ptrdiff_t>(channels));
      CHECK_THROWS_WITH(verify(plan), Catch::Contains("before it is written"));
    }
}
