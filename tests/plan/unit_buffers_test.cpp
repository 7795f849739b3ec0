#include <catch2/catch.hpp>
#include <string>

#include "runtime/optim/optimizer_rules.h"
#include "tests/plan/plans.h"

namespace dstrain {
namespace {

// Checks that the units of a training plan name the buffers of their state.
void check_units(const Job& job) {
  const RankPlan plans = plan_of(job, 0);
  for (const Plan* plan : plans.training()) {
    const Program& program = plan->program;
    for (const Unit& unit : program.trained_units()) {
      CAPTURE(unit.name, name_of(plan->kind));
      CHECK(unit.buffers.values == program.find("params:" + unit.name));
      CHECK(unit.buffers.gradients == program.find("grads:" + unit.name));
      CHECK(unit.buffers.separate_master == program.find("master:" + unit.name));
      CHECK(unit.buffers.master() != kNone);
      const auto slots = state_slots(job.optimizer);
      REQUIRE(unit.buffers.slots.size() == slots.size());
      for (const std::string_view slot : slots) {
        REQUIRE(unit.buffers.slot(slot) != kNone);
        CHECK(program.at(unit.buffers.slot(slot)).name == fmt::format("{}:{}", slot, unit.name));
      }
      CHECK(unit.buffers.slot("none") == kNone);
    }
  }
  for (const Unit& unit : plans.validate.program.units) {
    CHECK(unit.buffers.values == plans.validate.program.find("params:" + unit.name));
    CHECK(unit.buffers.gradients == kNone);
  }
}

TEST_CASE("units name the buffers of their state, at every stage, in every dtype, offloaded too") {
  for (const int stage : {0, 1, 2, 3})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const OffloadTo to : {OffloadTo::none, OffloadTo::cpu}) {
        CAPTURE(stage, name_of(dtype), to == OffloadTo::cpu);
        Job job = sharded_job(stage);
        job.dtype = job.wire_dtype = dtype;
        job.eval_interval = 1;
        job.offload.optimizer = to;
        check_units(job);
      }
}

TEST_CASE("units name the buffers of their state, whatever the optimizer keeps") {
  for (const OptimizerKind kind : {OptimizerKind::sgd, OptimizerKind::lion, OptimizerKind::lamb,
                                   OptimizerKind::muon, OptimizerKind::one_bit_adam}) {
    CAPTURE(static_cast<int>(kind));
    Job job = sharded_job(kind == OptimizerKind::one_bit_adam ? 0 : 1);
    job.optimizer.kind = kind;
    check_units(job);
  }
}

}  // namespace
}  // namespace dstrain
