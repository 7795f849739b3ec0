#include <catch2/catch.hpp>
#include <map>
#include <set>

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
