#include <catch2/catch.hpp>

#include "runtime/plan/proof/verify.h"
#include "tests/plan/plans.h"

using namespace dstrain;

TEST_CASE("verify finds a gather for nothing") {
  Plan plan = plan_of(sharded_job(3)).train;
  const size_t gather = issues_of(plan, OpKind::all_gather)[0];
  plan.order.insert(plan.order.begin() + static_cast<ptrdiff_t>(gather), plan.order[gather]);
  plan.waits.insert(plan.waits.begin() + static_cast<ptrdiff_t>(gather), plan.waits[gather]);
  CHECK_THROWS_WITH(verify_gathers(plan), Catch::Contains("never used"));
}

TEST_CASE("verify finds more live parameters than the limit allows") {
  Plan plan = plan_of(sharded_job(3)).train;
  verify_gathers(plan);
  plan.max_live_elements = plan.program.units[1].elements;
  CHECK_THROWS_WITH(verify_gathers(plan), Catch::Contains("are allowed"));
}
