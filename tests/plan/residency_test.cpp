#include "runtime/plan/residency.h"

#include <catch2/catch.hpp>

#include "runtime/core/error.h"
#include "tests/plan/plans.h"

using namespace dstrain;

TEST_CASE("each stage shards one class of model state more") {
  for (const int stage : {0, 1, 2, 3}) {
    const Residency r = residency_of(sharded_job(stage), {0, 4});
    CHECK(r.optimizer == (stage >= 1));
    CHECK(r.gradients == (stage >= 2));
    CHECK(r.parameters == (stage >= 3));
  }
}

TEST_CASE("ranks own the equal slices of a unit, in rank order") {
  const Unit unit{.name = "u", .elements = 96};
  for (int rank = 0; rank < 3; ++rank) {
    const Range owned = owned_slice(unit, {rank, 3});
    CHECK(owned.begin == 32 * rank);
    CHECK(owned.size() == 32);
    CHECK(range_of({.shape = {32}}, unit, {rank, 3}).begin == owned.begin);
    CHECK(range_of({.shape = {96}}, unit, {rank, 3}).begin == 0);
  }
  CHECK_THROWS_AS(range_of({.shape = {48}}, unit, {0, 3}), InternalError);
}

TEST_CASE("gradients that are added once per step are whole until then, at every stage") {
  Job job = sharded_job(2);
  job.reduce = ReduceMode::boundary;
  const RankPlan rank = plan_of(job);
  CHECK(bytes_of(rank, MemoryClass::gradients) == padded(rank) * 4);
}

TEST_CASE("one rank owns everything: no stage moves anything") {
  const RankPlan zero = plan_of(sharded_job(0, 1), 0);
  Job job = sharded_job(3, 1);
  job.reduce = ReduceMode::boundary;
  const RankPlan three = plan_of(job, 0);
  CHECK(three.memory.at_peak == zero.memory.at_peak);
  CHECK(count_collectives(three.train)[data_group] == 0);
}
