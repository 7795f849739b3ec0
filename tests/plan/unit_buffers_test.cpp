#include <catch2/catch.hpp>
#include <string>

#include "runtime/optim/optimizer_rules.h"
#include "tests/plan/plans.h"

namespace dstrain {
namespace {

// Checks that a buffer of a unit has a name, and as many elements as its share of the unit.
void check_buffer(const Plan& plan, const Unit& unit, const UnitBuffer& buffer,
                  const std::string& name) {
  const Program& program = plan.program;
  CAPTURE(name);
  CHECK(buffer.id == program.find(name));
  if (buffer.id == kNone) return;
  int64_t elements = 0;
  if (buffer.partial)
    for (const Range& range : *buffer.partial) elements += range.size();
  else
    elements = unit.elements / divisor(buffer.held, plan.place);
  CHECK(program.at(buffer.id).shape.elements() == buffer.values(elements));
  CHECK((buffer.divided == Axes()) == (buffer.held == Held::whole));
}

// Checks that the units of a training plan name the buffers of their state, and how these are held.
void check_units(const Job& job) {
  const RankPlan plans = plan_of(job, 0);
  const Residency residency = residency_of(job, place_of(job, 0));
  for (const Plan* plan : plans.training()) {
    const Program& program = plan->program;
    for (const Unit& unit : program.trained_units()) {
      CAPTURE(unit.name, name_of(plan->kind));
      check_buffer(*plan, unit, unit.buffers.values, "params:" + unit.name);
      check_buffer(*plan, unit, unit.buffers.gradients, "grads:" + unit.name);
      check_buffer(*plan, unit, unit.buffers.micro_gradients, "micro_grads:" + unit.name);
      check_buffer(*plan, unit, unit.buffers.separate_master, "master:" + unit.name);
      check_buffer(*plan, unit, unit.buffers.direction, "direction:" + unit.name);
      CHECK(unit.buffers.wire.id == program.find("wire:" + unit.name));
      CHECK(unit.buffers.master().id != kNone);
      CHECK(unit.buffers.values.held == residency.parameters);
      CHECK(unit.buffers.gradients.held == residency.gradients);
      const auto slots = state_slots(job.optimizer);
      REQUIRE(unit.buffers.slots.size() == slots.size());
      for (const SlotRule& slot : slots) {
        const UnitBuffers::Slot* const found = unit.buffers.slot(slot.name);
        REQUIRE(found);
        const std::string name = fmt::format("{}:{}", slot.name, unit.name);
        CHECK(program.at(found->values.id).dtype == slot.dtype_in(job));
        CHECK(found->values.block == slot.block);
        check_buffer(*plan, unit, found->values, name);
        CHECK(found->values.held == residency.optimizer);
        CHECK(found->gathered == program.find("whole_" + name));
      }
      CHECK_FALSE(unit.buffers.slot("none"));
    }
  }
  for (const Unit& unit : plans.validate.program.units) {
    check_buffer(plans.validate, unit, unit.buffers.values, "params:" + unit.name);
    CHECK(unit.buffers.gradients.id == kNone);
  }
}

TEST_CASE("units name the buffers of their state, at every stage, in every dtype, offloaded too") {
  for (const int stage : {0, 1, 2, 3})
    for (const int shard : {0, 2})
      for (const DType dtype : {DType::f32, DType::bf16})
        for (const OffloadTo to : {OffloadTo::none, OffloadTo::cpu}) {
          CAPTURE(stage, shard, name_of(dtype), to == OffloadTo::cpu);
          if (shard > 0 && stage < 3) continue;
          Job job = sharded_job(stage);
          job.shards.ranks = shard;
          job.dtype = job.wire_dtype = dtype;
          job.eval_interval = 1;
          job.offload.optimizer = to;
          check_units(job);
        }
}

TEST_CASE("units name the buffers of their state, whatever the optimizer keeps") {
  for (const OptimizerKind kind :
       {OptimizerKind::sgd, OptimizerKind::lion, OptimizerKind::lamb, OptimizerKind::muon,
        OptimizerKind::adam_8bit, OptimizerKind::lion_8bit, OptimizerKind::one_bit_adam,
        OptimizerKind::one_bit_lamb})
    for (const int stage : {0, 1}) {
      CAPTURE(static_cast<int>(kind), stage);
      Job job = sharded_job(stage);
      job.optimizer.kind = kind;
      check_units(job);
    }
}

}  // namespace
}  // namespace dstrain
