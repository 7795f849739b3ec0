#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "runtime/plan/residency.h"
#include "tests/plan/plans.h"

using namespace dstrain;

TEST_CASE("every element of a unit is updated exactly once, decayed or not") {
  Job job = small_job();
  job.optimizer.weight_decay = 0.1;
  job.weight_decay_exclude = {"*.bias", "*ln*"};
  const Plan plan = train_plan(job);
  std::map<BufferId, int64_t> updated;
  std::set<float> decays;
  for (const Instruction& op : plan.program.instructions) {
    if (op.op != OpKind::adam) continue;
    updated[plan.program.root(op.writes[0])] += plan.program.at(op.writes[0]).shape.elements();
    decays.insert(attrs_as<AdamAttrs>(op.attrs).weight_decay);
  }
  CHECK(updated.size() == plan.program.units.size());
  for (const auto& [root, elements] : updated)
    CHECK(elements == plan.program.at(root).shape.elements());
  CHECK(decays == std::set<float>{0.0f, 0.1f});
}

TEST_CASE("where the optimizer is sharded a rank updates its slice, and slices are gathered") {
  for (const int stage : {0, 1, 2, 3}) {
    const Job job = sharded_job(stage);
    const Plan plan = plan_of(job).train;
    std::map<std::string, int64_t> updated;
    size_t gathers = 0;
    for (const Instruction& op : plan.program.instructions) {
      if (op.when != When::step_end) continue;
      if (op.op == OpKind::adam)
        updated[group_of(plan, op)] += plan.program.at(op.writes[0]).shape.elements();
      gathers += op.op == OpKind::all_gather;
    }
    for (const Unit& unit : plan.program.units)
      CHECK(updated[unit.name] == unit.elements / (stage >= 1 ? job.ranks : 1));
    // At stage 3 parameters are gathered where they are used.
    CHECK(gathers == (stage == 1 || stage == 2 ? plan.program.units.size() : 0));
  }
}

TEST_CASE("Lamb moves every element of a parameter once, by norms of the slices that ranks own") {
  for (const int stage : {0, 1, 2, 3}) {
    Job job = sharded_job(stage);
    job.optimizer.kind = OptimizerKind::lamb;
    const Plan plan = plan_of(job).train;
    const Program& program = plan.program;
    std::map<std::string, int64_t> moved, summed;
    std::map<std::string, int> gathers;
    for (const Instruction& op : program.instructions) {
      if (op.when != When::step_end) continue;
      const std::string unit = group_of(plan, op);
      if (op.op == OpKind::lamb) moved[unit] += program.at(op.writes[0]).shape.elements();
      if (op.op == OpKind::sum_squares && unit != "step")
        summed[unit] += program.at(op.reads[0]).shape.elements();
      if (op.op == OpKind::all_gather)
        gathers[unit] += program.at(op.writes[0]).dtype == DType::f64;
    }
    for (const Unit& unit : program.units) {
      int64_t elements = 0, owned = 0;
      const Range slice = owned_slice(unit, plan.place);
      for (const int index : unit.parameters) {
        const Parameter& p = program.parameters[static_cast<size_t>(index)];
        const int64_t end = p.offset + p.shape.elements();
        elements += p.shape.elements();
        owned += std::max<int64_t>(0, std::min(end, slice.end) - std::max(p.offset, slice.begin));
      }
      CHECK(moved[unit.name] == (stage == 0 ? elements : owned));
      CHECK(summed[unit.name] == 2 * owned);
      CHECK(gathers[unit.name] == 1);
    }
  }
}

TEST_CASE("Lamb's sums are gathered by a rank too that owns nothing but padding") {
  Job job = sharded_job(2, 3);
  job.optimizer.kind = OptimizerKind::lamb;
  job.model = {
      .kind = ModelKind::benchmark, .n_layer = 2, .in_size = 1, .hidden_size = 1, .out_size = 2};
  for (int rank = 0; rank < 3; ++rank) {
    const Plan plan = plan_of(job, rank).train;
    int64_t sums = 0, steps = 0;
    for (const Instruction& op : plan.program.instructions) {
      sums += op.op == OpKind::all_gather && plan.program.at(op.writes[0]).dtype == DType::f64;
      steps += op.op == OpKind::lamb && group_of(plan, op) == plan.program.units.front().name;
    }
    CHECK(sums == static_cast<int64_t>(plan.program.units.size()));
    CHECK((steps == 0) == (rank == 2));
  }
}
