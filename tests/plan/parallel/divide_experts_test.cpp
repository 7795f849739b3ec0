#include <catch2/catch.hpp>

#include "runtime/plan/proof/verify_ranks.h"
#include "runtime/plan/report/traffic.h"
#include "tests/plan/plans.h"
#include "tests/support/decoders.h"
#include "tests/support/sample.h"

using namespace dstrain;

namespace {

constexpr int64_t kLayers = 2, kExperts = 8, kWidth = 24, kHidden = 21, kSlots = 2, kTokens = 7;

Job experts_job(int data, int expert_ranks, int zero_stage = 0, int stages = 1) {
  Job job;
  job.model = decoder("mixtral", {{"num_hidden_layers", kLayers},
                                  {"num_local_experts", kExperts},
                                  {"num_experts_per_tok", kSlots},
                                  {"num_key_value_heads", int64_t{2}}});
  job.pipeline.stages = stages;
  job.expert_ranks = expert_ranks;
  job.ranks = data * stages;
  job.batch = {2 * 2 * data, 2, 2};
  job.zero_stage = zero_stage;
  job.reduce = usual_reduce(zero_stage);
  job.overlap_comm = zero_stage % 2 == 1;
  job.gather = {.param_persistence = 0, .max_reuse_distance = 0};
  job.eval_interval = 1;
  return job;
}

const Unit& unit_named(const Plan& plan, const std::string& end) {
  for (const Unit& unit : plan.program.units)
    if (unit.name.ends_with(end)) return unit;
  throw InternalError("there is no such unit");
}

}  // namespace

TEST_CASE("a rank of an expert group has its experts, in a unit of their own") {
  for (const int rank : {0, 1, 2, 3}) {
    const Plan plan = plan_of(experts_job(4, 2), rank).train;
    const Unit& unit = unit_named(plan, ":experts");
    CHECK(unit.parameters.size() == 3);
    CHECK(unit.axes == kExpertStateAxes);
    for (const int index : unit.parameters) {
      const Parameter& p = plan.program.parameter(index);
      CHECK(p.is_of_experts);
      CHECK(p.part == TensorPart{.by = TensorPart::By::rows, .parts = 2, .part = rank % 2});
      CHECK(plan.program.at(p.value).shape.elements() == p.shape.elements() / 2);
      CHECK(p.gradient_terms == 2);
      CHECK(plan.program.at(p.gradient).shape.elements() == p.shape.elements());
    }
  }
  const Plan whole = plan_of(experts_job(4, 1), 0).train;
  for (const Unit& unit : whole.program.units) CHECK_FALSE(unit.name.ends_with(":experts"));
}

TEST_CASE("rows travel four times in a layer, and recompute does not send them again") {
  Job job = experts_job(2, 2);
  CHECK(count_ops(plan_of(job).train, OpKind::exchange_rows) == 4 * kLayers);
  CHECK(count_ops(plan_of(job).train, OpKind::expert_ends) == kLayers);
  CHECK(count_ops(plan_of(job).validate, OpKind::exchange_rows) == 2 * kLayers);
  for (const RecomputeConfig& recompute : {RecomputeConfig{RecomputeMode::interval, 1},
                                           RecomputeConfig{RecomputeMode::selective, 0}}) {
    job.recompute = recompute;
    CHECK(count_ops(plan_of(job).train, OpKind::exchange_rows) == 4 * kLayers);
  }
}

TEST_CASE("the plan says what rows and gradients take where choices are even") {
  const Job job = experts_job(4, 2, 1);
  const Plan plan = plan_of(job).train;
  const AxisBytes bytes = bytes_by_axis(plan);
  const int64_t rows = 2 * kTokens * kSlots, of_layer = 4 * rows * kWidth * 4 / 2;
  int64_t ends = 0;  // which ranks gather first
  for (const Issue& issue : plan.order) {
    const Instruction& op = plan.instruction_of(issue);
    if (op.op == OpKind::all_gather && plan.comm_channel(op).group == Axis::expert)
      ends += ring_bytes(Collective::all_gather, plan.program.at(op.writes[0]).bytes(), 2);
  }
  CHECK(bytes.expert == 2 * kLayers * of_layer + ends);
  // Two ranks have the same experts: each sends half of the terms of its own.
  const int64_t experts = 3 * kExperts * kHidden * kWidth * 4;
  const int64_t sent = sent_on(plan, kExpertStateAxes);
  CHECK(sent >=
        kLayers * (experts / 2 + experts / 4));  // and the new weights of half of half of them
  CHECK(sent < kLayers * (experts / 2 + experts / 4) * 11 / 10);
}

TEST_CASE("the plans of all ranks fit together where ranks divide experts") {
  Sample sample(4);
  for (const int stages : {1, 2})
    for (const int data : {2, 4, 6})
      for (const int expert_ranks : {2, 4})
        for (const int zero_stage : {0, 1, 2, 3}) {
          if (data % expert_ranks != 0 || !sample.takes()) continue;
          CAPTURE(stages, data, expert_ranks, zero_stage);
          const Job job = experts_job(data, expert_ranks, zero_stage, stages);
          std::vector<RankPlan> ranks;
          std::vector<const RankPlan*> list;
          for (int r = 0; r < job.ranks; ++r) ranks.push_back(plan_of(job, r));
          for (const RankPlan& rank : ranks) list.push_back(&rank);
          CHECK_NOTHROW(verify_ranks(list));
        }
}

TEST_CASE("a rank holds its part of the experts and of their state") {
  const auto held = [](int expert_ranks, int stage, MemoryClass memory) {
    return persistent_bytes(plan_of(experts_job(4, expert_ranks, stage), 0).train.program, memory);
  };
  const int64_t experts = kLayers * 3 * kExperts * kHidden * kWidth * 4;
  for (const int degree : {2, 4}) {
    const int64_t saved = experts - experts / degree;
    const int64_t parameters = held(1, 0, MemoryClass::parameters) -
                               held(degree, 0, MemoryClass::parameters),
                  state =
                      held(1, 0, MemoryClass::optimizer) - held(degree, 0, MemoryClass::optimizer);
    CHECK(std::abs(parameters - saved) < 2000);
    CHECK(std::abs(state - 2 * saved) < 4000);
    // Where ranks divide all state, it is the same.
    CHECK(std::abs(held(1, 1, MemoryClass::optimizer) - held(degree, 1, MemoryClass::optimizer)) <
          4000);
  }
}
