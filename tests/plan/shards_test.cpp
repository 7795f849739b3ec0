// Parameters that are divided among the ranks of a replica: HYBRID_SHARD, MiCS, hpZ.
#include <catch2/catch.hpp>
#include <set>

#include "runtime/core/error.h"
#include "runtime/plan/report/print.h"
#include "tests/plan/plans.h"

using namespace dstrain;

namespace {

Job shards_job(int ranks, int shard_ranks, DType dtype = DType::bf16) {
  Job job = sharded_job(3, ranks);
  job.shards.ranks = shard_ranks;
  job.dtype = job.wire_dtype = dtype;
  job.model.set("vocab_size", 65);
  job.model.set("n_embd", 64);
  return job;
}

}  // namespace

TEST_CASE("shard groups are consecutive ranks, replica groups have one number in each") {
  const Place place({2, 2, 4, 1, 1, 1}, 13);  // rank 5 of the second stage
  CHECK(place.stage() == 1);
  CHECK(place.rank() == 5);
  CHECK(place.factored());
  CHECK(place.replicas() == 2);
  CHECK(place.replica() == 1);
  CHECK(place.shard_rank() == 1);
  CHECK(place.ranks_in(kStateAxes) == 8);
  CHECK(place.ranks_in(Axis::shard) == 4);
  CHECK(place.ranks_in(Axis::replica) == 2);
  CHECK_FALSE(data_place(5, 8, 8).factored());
  CHECK_FALSE(data_place(5, 8, 1).factored());
}

TEST_CASE("the ranks of a host are a shard group, if every host has as many") {
  CHECK(host_shard_ranks(std::vector{0, 0, 1, 1}, 1) == 2);
  CHECK(host_shard_ranks(std::vector{0, 0, 0, 0}, 1) == 4);
  CHECK(host_shard_ranks(std::vector{0, 0, 0, 0}, 2) == 2);
  CHECK(host_shard_ranks(std::vector{0, 0, 1, 1, 2, 2, 3, 3}, 2) == 2);
  CHECK(host_shard_ranks(std::vector{0, 1, 2, 3}, 1) == 1);
  CHECK(host_shard_ranks(std::vector{0, 0, 1, 1}, 2) == 2);
  for (const std::vector<int>& hosts :
       {std::vector{0, 0, 0, 1}, {0, 1, 1, 1}, {0, 0, 1, 2}, {0, 0, 1, 1, 1, 1}, {0, 1, 0, 0}})
    CHECK_THROWS_AS(host_shard_ranks(hosts, 1), UserError);
  CHECK(host_shard_ranks(std::vector{0, 0, 0, 0, 1, 1, 1, 1}, 1, 2) == 2);
  CHECK(host_shard_ranks(std::vector{0, 0, 0, 0, 1, 1, 1, 1}, 1, 4) == 1);
  CHECK(host_shard_ranks(std::vector{0, 0, 0, 0, 1, 1, 1, 1}, 2, 2) == 2);
  CHECK(host_shard_ranks(std::vector{0, 0, 1, 1}, 1, 4) == 1);  // one data-parallel rank
  CHECK_THROWS_WITH(host_shard_ranks(std::vector{0, 0, 1, 1, 2, 2, 3, 3}, 1, 4),
                    Catch::Contains("hosts of 2 ranks divide the 4 ranks that share layers or "
                                    "samples"));
  Job job = shards_job(4, 0);
  job.shards.by_host = true;
  settle_host_shards(job, std::vector{0, 0, 1, 1});
  CHECK(job.shards == ShardConfig{2, false});
}

TEST_CASE("memory: 1/S of the parameters, 1/N of gradients and optimizer state") {
  for (const auto& [ranks, shard] : {std::pair{4, 2}, {8, 2}, {8, 4}, {6, 3}, {4, 1}, {4, 4}})
    for (const ReduceMode reduce : {ReduceMode::micro_batch, ReduceMode::boundary}) {
      INFO(ranks << " ranks, shards of " << shard);
      Job job = shards_job(ranks, shard);
      job.reduce = reduce;
      for (int rank = 0; rank < ranks; ++rank) {
        const RankPlan plan = plan_of(job, rank);
        const auto held = [&](int64_t element, int parts) {
          int64_t sum = 0;  // of buffers that begin at cache lines
          for (const Unit& unit : plan.train.program.units)
            sum += (unit.elements * element / parts + 63) / 64 * 64;
          return sum;
        };
        CHECK(bytes_of(plan, MemoryClass::parameters) == held(2, shard));
        CHECK(bytes_of(plan, MemoryClass::optimizer) == 3 * held(4, ranks));
        CHECK(bytes_of(plan, MemoryClass::gradients) ==
              held(4, reduce == ReduceMode::micro_batch ? ranks : 1));
      }
    }
}

TEST_CASE("bytes: gathers stay within a replica, gradients and updated slices cross") {
  for (const auto& [ranks, shard] : {std::pair{4, 2}, {8, 2}, {8, 4}, {6, 3}}) {
    INFO(ranks << " ranks, shards of " << shard);
    const Plan plain = plan_of(shards_job(ranks, 0)).train;
    const Plan plan = plan_of(shards_job(ranks, shard)).train;
    int64_t all = 0;
    for (const Unit& unit : plan.program.units) all += unit.elements;
    // Two micro-batches, whose sums travel in the run's dtype.
    const int64_t gradients = 2 * 2 * all / ranks * (ranks - 1);
    CHECK(sent_on(plan, kStateAxes) == gradients);
    const int64_t replicas = ranks / shard;
    CHECK(sent_on(plan, Axis::replica) == 2 * all / ranks * (replicas - 1));
    const int64_t gathers = sent_on(plain, kStateAxes) - gradients;
    CHECK(sent_on(plan, Axis::shard) == gathers / (ranks - 1) * ranks / shard * (shard - 1));
    CHECK(wire_bytes(plan) ==
          sent_on(plan, kStateAxes) + sent_on(plan, Axis::shard) + sent_on(plan, Axis::replica));
  }
}

TEST_CASE("a unit is gathered in blocks, of which a rank has a slice each") {
  const Job job = shards_job(6, 2);
  for (int rank = 0; rank < 6; ++rank) {
    const Plan plan = plan_of(job, rank).train;
    const Program& p = plan.program;
    std::vector<std::pair<int64_t, int64_t>> blocks;  // of a layer's first gather
    for (const Instruction& op : p.instructions) {
      if (op.channel != channel_of(plan.place, Axis::shard) || blocks.size() == 3) continue;
      const int64_t n = p.units.front().elements;
      CHECK(p.at(op.reads[0]).shape.elements() == n / 6);
      CHECK(p.at(op.writes[0]).shape.elements() == n / 3);
      blocks.emplace_back(p.at(op.reads[0]).parent_offset, p.at(op.writes[0]).parent_offset);
    }
    const int64_t n = p.units.front().elements;
    CHECK(blocks == std::vector<std::pair<int64_t, int64_t>>{
                        {0, 0}, {n / 6, n / 3}, {2 * (n / 6), 2 * (n / 3)}});
  }
}

TEST_CASE("all ranks post the same collectives in the same order") {
  for (const int64_t reuse : {0, 1'000'000'000}) {
    Job job = shards_job(8, 4);
    job.gather.max_reuse_distance = reuse;
    const std::vector<std::string> first = comm_work(plan_of(job, 0).train);
    for (int rank = 1; rank < 8; ++rank) CHECK(comm_work(plan_of(job, rank).train) == first);
  }
}

TEST_CASE("a pipeline's stages have shards of their own") {
  Job job = shards_job(8, 2);
  job.pipeline.stages = 2;
  for (int rank = 0; rank < 8; ++rank) {
    const RankPlan plan = plan_of(job, rank);
    CHECK(plan.train.comm_channels.size() == 3 + 5);
    CHECK(bytes_of(plan, MemoryClass::parameters) == 2 * padded(plan) / 2);
    CHECK(bytes_of(plan, MemoryClass::optimizer) == 12 * padded(plan) / 4);
    CHECK(sent_on(plan.train, Axis::shard) > 0);
  }
  CHECK_NOTHROW(make_stage_plans(job, 1, fake_inputs()));
}

TEST_CASE("the printed plan names the groups") {
  const std::string text = plan_to_text(plan_of(shards_job(8, 4), 5), "t");
  CHECK_THAT(text, Catch::Contains("8 data-parallel ranks are 2 replicas of 4: rank 5 is number 1 "
                                   "of replica 1") &&
                       Catch::Contains("shard group 4 to 7") &&
                       Catch::Contains("replica group 1, 5") &&
                       Catch::Contains("all_gather in shard group") &&
                       Catch::Contains("all_gather in replica group"));
  CHECK_THAT(plan_to_text(plan_of(shards_job(8, 8), 5), "t"), !Catch::Contains("replica"));
}
