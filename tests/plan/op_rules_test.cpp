// What rules say of ops, against what the instructions of plans do.
#include <catch2/catch.hpp>
#include <set>

#include "tests/plan/plans.h"

namespace dstrain {
namespace {

// Returns the units whose update has an instruction of which `is` holds.
template <class Is>
std::set<std::string> units_with(const Plan& plan, const Is& is) {
  std::set<std::string> units;
  for (const Instruction& op : plan.program.instructions)
    if (op.when == When::step_end && is(rule_of(op.op))) units.insert(group_of(plan, op));
  return units;
}

TEST_CASE("each optimizer clips every unit's gradient, and moves the weights of every unit") {
  for (size_t i = 0; i < kOptimizerKinds; ++i) {
    Job job = sharded_job(0);
    job.optimizer.kind = static_cast<OptimizerKind>(i);
    job.optimizer.freeze_step = 5;
    const RankPlan plans = plan_of(job);
    for (const StepKind kind : step_kinds(job)) {
      CAPTURE(i, name_of(kind));
      const Plan& plan = plans.training(kind);
      const size_t units = plan.program.units.size();
      CHECK(units_with(plan, [](const OpRule& r) { return r.clips_gradient; }).size() == units);
      // Local steps leave the weights of the unit to the step that ends them.
      const auto moved = units_with(plan, [](const OpRule& r) { return r.moves_weights; });
      CHECK(moved.size() == (kind == StepKind::local ? 0 : units));
    }
  }
}

TEST_CASE("what writes the gradient of a parameter sums its rows, in norms that are joined too") {
  for (const bool joins : {false, true}) {
    const PlanInputs inputs{std::make_shared<FakeLibrary>(0, false, false, joins), 1};
    const Plan plan = make_rank_plan(small_job(), place_of(small_job(), 0), inputs).train;
    std::set<BufferId> written;
    for (const Instruction& op : plan.program.instructions) {
      if (op.when == When::step_end || !has_kernel(op.op)) continue;
      for (size_t i = 0; i < op.writes.size(); ++i) {
        const auto of =
            std::ranges::find(plan.program.parameters, op.writes[i], &Parameter::gradient);
        if (op.writes[i] == kNone || of == plan.program.parameters.end()) continue;
        CAPTURE(name_of(op.op), of->name);
        CHECK(rule_of(op.op).gradient_terms == GradientTerms::rows);
        CHECK(rule_of(op.op).sums.contains(i));
        written.insert(op.writes[i]);
      }
    }
    CHECK(written.size() == plan.program.parameters.size());
  }
}

}  // namespace
}  // namespace dstrain
