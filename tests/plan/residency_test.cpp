#include "runtime/plan/residency.h"

#include <catch2/catch.hpp>

#include "runtime/core/error.h"
#include "tests/plan/plans.h"

using namespace dstrain;

TEST_CASE("each stage shards one class of model state more") {
  for (const int stage : {0, 1, 2, 3}) {
    const Residency r = residency_of(sharded_job(stage), data_place(0, 4));
    CHECK((r.optimizer == Held::slice) == (stage >= 1));
    CHECK((r.gradients == Held::slice) == (stage >= 2));
    CHECK((r.parameters == Held::slice) == (stage >= 3));
  }
}

TEST_CASE("ranks own the equal slices of a unit, in rank order") {
  const Unit unit{.name = "u", .elements = 96};
  for (int rank = 0; rank < 3; ++rank) {
    const Range owned = owned_slice(unit, data_place(rank, 3));
    CHECK(owned.begin == 32 * rank);
    CHECK(owned.size() == 32);
    CHECK(range_of(unit_buffer(0, Held::slice), unit, data_place(rank, 3)).begin == owned.begin);
    CHECK(range_of(unit_buffer(0, Held::whole), unit, data_place(rank, 3)).begin == 0);
  }
}

TEST_CASE("a slice is divided along the axes that it names") {
  const Unit unit{.name = "u", .elements = 96};
  const Place place = data_place(3, 4, 2);  // the second replica's second rank
  const UnitBuffer of_all = unit_buffer(0, Held::slice),
                   of_shard = unit_buffer(0, Held::slice, Axis::shard);
  CHECK(of_all.divided == kStateAxes);
  CHECK(range_of(of_all, unit, place).begin == 72);
  CHECK(range_of(of_shard, unit, place).begin == 48);
  CHECK(range_of(of_shard, unit, place).size() == 48);
  CHECK(position_of(of_shard, unit, place, 50) == 2);
  CHECK(unit_buffer(0, Held::whole).divided == Axes());
  CHECK(unit_buffer(0, Held::shard).divided == kShardAxes);
}

TEST_CASE("state that leaves parameters out has the rest one behind the other") {
  const Unit unit{.name = "u", .elements = 96};
  UnitBuffer buffer = unit_buffer(0, Held::slice);
  buffer.partial = {{48, 52}, {60, 96}};
  const Place place = data_place(1, 2);
  CHECK(range_of(buffer, unit, place).begin == 48);
  CHECK(position_of(buffer, unit, place, 51) == 3);
  CHECK(position_of(buffer, unit, place, 61) == 5);
  CHECK_THROWS_AS(position_of(buffer, unit, place, 55), InternalError);
}

TEST_CASE("state with a value for each block of elements") {
  const Unit unit{.name = "u", .elements = 96};
  const Place place = data_place(1, 2);
  UnitBuffer buffer = unit_buffer(0, Held::slice);
  buffer.block = 8;
  CHECK(position_of(buffer, unit, place, 48) == 0);
  CHECK(position_of(buffer, unit, place, 71) == 2);
  buffer.partial = {{48, 56}, {64, 96}};
  CHECK(position_of(buffer, unit, place, 64) == 1);
  CHECK(position_of(buffer, unit, place, 95) == 4);
  CHECK(buffer.values(40) == 5);
  CHECK(buffer.values(33) == 5);
}

TEST_CASE("a shard is the slices of a replica group, each of which one rank updates") {
  const Unit unit{.name = "u", .elements = 96};
  const UnitBuffer shard = unit_buffer(0, Held::shard);
  for (int rank = 0; rank < 6; ++rank) {
    const Place place = data_place(rank, 6, 2);
    CHECK(place.replica() == rank / 2);
    CHECK(place.shard_rank() == rank % 2);
    CHECK(range_of(shard, unit, place).begin == 16 * rank);
    CHECK(range_of(shard, unit, place).size() == 16);
    CHECK(position_of(shard, unit, place, 16 * rank) == 16 * place.replica());
    CHECK(position_of(unit_buffer(0, Held::slice), unit, place, 16 * rank + 3) == 3);
    CHECK(position_of(unit_buffer(0, Held::whole), unit, place, 16 * rank + 3) == 16 * rank + 3);
  }
}

TEST_CASE("shards of one rank are whole parameters, those of all ranks slices") {
  Job job = sharded_job(3);
  for (const auto& [ranks, held] :
       {std::pair{1, Held::whole}, {2, Held::shard}, {4, Held::slice}, {0, Held::slice}}) {
    job.shards.ranks = ranks;
    const Residency r = residency_of(job, place_of(job, 1));
    CHECK(r.parameters == held);
    CHECK(r.optimizer == Held::slice);
    CHECK(r.gradients == Held::slice);
  }
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
  CHECK(count_collectives(three.train)[kStateChannel] == 0);
}
