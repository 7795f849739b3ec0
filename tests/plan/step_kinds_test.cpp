// Kinds of steps: which step has which, and the plans of a run that has several.
#include "runtime/plan/step_kinds.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "runtime/plan/report/print.h"
#include "runtime/plan/report/traffic.h"
#include "tests/plan/plans.h"

namespace dstrain {
namespace {

using Kinds = std::vector<StepKind>;

Job hook_job(HookConfig hook, int ranks = 4) {
  Job job = sharded_job(0, ranks);
  job.hook = hook;
  return job;
}

Kinds kinds_of_steps(const Job& job, int64_t steps) {
  Kinds kinds;
  for (int64_t applied = 0; applied < steps; ++applied)
    kinds.push_back(kind_of_step(job, applied, StepKind::regular));
  return kinds;
}

TEST_CASE("a job without a hook has one kind of steps, and so has one without peers") {
  const HookConfig hook{.kind = HookKind::power_sgd, .start = 2};
  for (const Job& job : {hook_job({}), hook_job(hook, 1)}) {
    CHECK(step_kinds(job) == Kinds{StepKind::regular});
    CHECK(kinds_of_steps(job, 3) == Kinds(3, StepKind::regular));
    CHECK(steps_text(job, StepKind::regular) == "all steps");
    const RankPlan plans = plan_of(job, 0);
    CHECK(plans.other.empty());
    CHECK(step_kinds_text(job, plans).empty());
  }
}

TEST_CASE("before a hook starts gradients are whole") {
  const Job job = hook_job({.kind = HookKind::power_sgd, .start = 2});
  const StepKind whole = StepKind::whole_gradients, regular = StepKind::regular;
  CHECK(step_kinds(job) == Kinds{regular, whole});
  CHECK(kinds_of_steps(job, 4) == Kinds{whole, whole, regular, regular});
  CHECK(steps_text(job, whole) == "steps 1 to 2");
  CHECK(steps_text(job, regular) == "from step 3 on");
  CHECK(step_kinds(hook_job({.kind = HookKind::power_sgd})) == Kinds{regular});
  CHECK(steps_text(hook_job({.kind = HookKind::power_sgd}), regular) == "all steps");
}

TEST_CASE("the plans of a run have one persistent memory and one transient memory") {
  const Job job = hook_job({.kind = HookKind::power_sgd, .start = 2});
  const RankPlan plans = plan_of(job, 1);
  REQUIRE(plans.other.size() == 1);
  const Plan& whole = plans.training(StepKind::whole_gradients);
  CHECK(&whole == &plans.other.front());
  CHECK(&plans.training(StepKind::regular) == &plans.train);
  CHECK_THROWS(plan_of(hook_job({}), 1).training(StepKind::whole_gradients));
  size_t shared = 0;
  for (size_t i = 0; i < whole.program.buffers.size(); ++i) {
    const Buffer& b = whole.program.buffers[i];
    if (b.lifetime != Lifetime::persistent || b.parent != kNone) continue;
    const BufferId id = plans.train.program.find(b.name);
    REQUIRE(id != kNone);
    const Address &mine = whole.address[i], &theirs = plans.train.address[static_cast<size_t>(id)];
    CHECK(mine.region == theirs.region);
    CHECK(mine.offset == theirs.offset);
    ++shared;
  }
  CHECK(shared > 0);
  CHECK(plans.train.program.find("hook_error") != kNone);
  CHECK(whole.program.find("hook_error") == kNone);
  const RankPlan plain = plan_of(hook_job({}), 1);
  CHECK(plans.memory.total() >= plain.memory.total());
  CHECK(wire_bytes(whole) == wire_bytes(plain.train));
  const auto json = nlohmann::json::parse(plan_to_json(plans));
  REQUIRE(json["other_steps"].size() == 1);
  CHECK(json["comm_bytes"] == wire_bytes(plans.train));
  CHECK(json["other_steps"][0]["kind"] == "whole gradients");
  CHECK(json["other_steps"][0]["comm_bytes"] == wire_bytes(whole));
  CHECK(json["other_steps"][0]["instructions"].size() == whole.order.size());
  CHECK_FALSE(nlohmann::json::parse(plan_to_json(plain)).contains("other_steps"));
  const std::string text = step_kinds_text(job, plans);
  CHECK(text.find("whole gradients steps 1 to 2: ") != std::string::npos);
  CHECK(text.find("regular         from step 3 on: ") != std::string::npos);
}

}  // namespace
}  // namespace dstrain
