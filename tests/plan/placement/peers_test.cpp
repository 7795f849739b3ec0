// What lies in memory that is registered with communicators: what peers read, and nothing else.
#include "runtime/plan/placement/peers.h"

#include <catch2/catch.hpp>
#include <set>

#include "runtime/core/error.h"
#include "runtime/plan/proof/verify.h"
#include "tests/plan/stage_plans.h"

using namespace dstrain;

namespace {

bool is_registered(const Plan& plan, const std::string& name) {
  const BufferId id = plan.program.find(name);
  REQUIRE(id != kNone);
  return plan.address[static_cast<size_t>(id)].region == Region::registered;
}

// Checks that the registered memory of a rank has what collectives and messages of several ranks read.
void check_registered(const RankPlan& rank) {
  std::set<std::string> names;  // in all plans
  const auto read = [&](const Plan& plan) {
    std::set<BufferId> roots;
    for (const Instruction& op : plan.program.instructions)
      if (is_collective(op.op))
        for (const BufferId id : op.reads) roots.insert(plan.program.root(id));
    for (const BufferId id : roots) names.insert(plan.program.at(id).name);
    return roots;
  };
  std::vector<const Plan*> plans = rank.training();
  if (!rank.validate.order.empty()) plans.push_back(&rank.validate);
  for (const Plan* plan : plans) read(*plan);
  for (const Plan* plan : plans) {
    const std::set<BufferId> roots = read(*plan);
    for (size_t b = 0; b < plan->program.buffers.size(); ++b) {
      const Buffer& buffer = plan->program.buffers[b];
      if (buffer.parent != kNone) continue;
      CAPTURE(name_of(plan->kind), buffer.name);
      const bool expected = roots.contains(static_cast<BufferId>(b)) ||
                            (buffer.space == Space::device && names.contains(buffer.name) &&
                             plan->program.find(buffer.name) == static_cast<BufferId>(b));
      CHECK((plan->address[b].region == Region::registered) == expected);
    }
  }
}

}  // namespace

TEST_CASE("registered memory has what peers read, at every stage and with every way to reduce") {
  for (const int stage : {0, 1, 2, 3})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const ReduceMode reduce : {ReduceMode::boundary, ReduceMode::micro_batch})
        for (const OffloadTo to : {OffloadTo::none, OffloadTo::cpu, OffloadTo::nvme}) {
          CAPTURE(stage, name_of(dtype), static_cast<int>(reduce), static_cast<int>(to));
          Job job = sharded_job(stage);
          job.dtype = job.wire_dtype = dtype;
          job.reduce = reduce;
          job.eval_interval = 1;
          job.offload.optimizer = to;
          if (stage == 3) job.offload.parameters = to;
          check_registered(plan_of(job));
        }
}

TEST_CASE("registered memory has what peers read of codecs and of every optimizer") {
  for (const OptimizerKind kind :
       {OptimizerKind::adam, OptimizerKind::lamb, OptimizerKind::muon, OptimizerKind::one_bit_adam,
        OptimizerKind::one_bit_lamb, OptimizerKind::zero_one_adam})
    for (const int stage : {0, 1}) {
      if (kind == OptimizerKind::zero_one_adam && stage > 0) continue;
      CAPTURE(static_cast<int>(kind), stage);
      Job job = sharded_job(stage);
      job.optimizer.kind = kind;
      job.optimizer.freeze_step = 2;
      check_registered(plan_of(job));
    }
  for (const int shard : {0, 2}) {
    Job job = sharded_job(3);
    job.dtype = job.wire_dtype = DType::bf16;
    job.shards.ranks = shard;
    job.quantize = {.weights = true, .gradients = true};
    check_registered(plan_of(job));
  }
  for (const HookKind kind : {HookKind::power_sgd, HookKind::post_local_sgd}) {
    Job job = sharded_job(0);
    job.hook = {.kind = kind, .start = 1, .period = 2};
    if (kind == HookKind::post_local_sgd) job.shards = {2, false, false};
    check_registered(plan_of(job));
  }
}

TEST_CASE("activations that a stage sends lie in registered memory, those that it gets do not") {
  Job job = sharded_job(0, 4);
  job.pipeline.stages = 2;
  for (const Plan& plan : plans_of(job))
    for (const Instruction& op : plan.program.instructions) {
      if (op.op == OpKind::send)
        CHECK(is_registered(plan, plan.program.at(plan.program.root(op.reads[0])).name));
      if (op.op == OpKind::recv && op.when == When::every_micro)
        CHECK_FALSE(is_registered(plan, plan.program.at(plan.program.root(op.writes[0])).name));
    }
}

TEST_CASE("a rank without peers registers nothing") {
  for (const int stage : {0, 3}) {
    const RankPlan rank = plan_of(sharded_job(stage, 1), 0);
    CHECK(rank.memory.bytes_of(Region::registered) == 0);
  }
}

TEST_CASE("gradients that are rounded to be sent lie in memory of the rank's own") {
  Job job = sharded_job(0);
  CHECK(is_registered(plan_of(job).train, "grads:head"));
  job.dtype = job.wire_dtype = DType::bf16;
  const Plan plan = plan_of(job).train;
  CHECK_FALSE(is_registered(plan, "grads:head"));
  CHECK(is_registered(plan, "wire:head"));
}

TEST_CASE("what one kind of steps sends is registered in the plans of all kinds") {
  Job job = sharded_job(1);
  job.optimizer.kind = OptimizerKind::one_bit_adam;
  job.optimizer.freeze_step = 2;
  const RankPlan rank = plan_of(job);
  REQUIRE(rank.other.size() == 2);
  for (const Plan* plan : rank.training()) {
    CHECK(is_registered(*plan, "whole_exp_avg:head"));
    CHECK(is_registered(*plan, "grads:head"));  // regular steps send signs of the momentum
  }
}

TEST_CASE("verify finds what peers would read outside of registered memory") {
  Plan plan = plan_of(sharded_job(1)).train;
  verify(plan);
  const Instruction& op = op_at(plan, issues_of(plan, OpKind::reduce_scatter)[0]);
  plan.address[static_cast<size_t>(op.reads[0])].region = Region::transient;
  CHECK_THROWS_WITH(verify(plan), Catch::Contains("not in registered memory"));
}
