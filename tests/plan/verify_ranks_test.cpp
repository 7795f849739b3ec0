// Whether the plans of all ranks of a run fit together.
#include "runtime/plan/proof/verify_ranks.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "runtime/core/error.h"
#include "tests/plan/plans.h"

using namespace dstrain;

namespace {

std::vector<RankPlan> ranks_of(const Job& job) {
  std::vector<RankPlan> ranks;
  for (int r = 0; r < job.ranks; ++r) ranks.push_back(plan_of(job, r));
  return ranks;
}

void verify_all(const std::vector<RankPlan>& ranks) {
  std::vector<const RankPlan*> list;
  for (const RankPlan& rank : ranks) list.push_back(&rank);
  verify_ranks(list);
}

// Compares the ranks' checksums, as a run does when it starts.
void compare_training(const std::vector<RankPlan>& ranks, PipelineSchedule schedule = {}) {
  std::vector<double> all;
  for (const RankPlan& rank : ranks)
    for (const double checksum : channel_checksums(rank.train)) all.push_back(checksum);
  compare_checksums(all, ranks.front().train.place, schedule);
}

// Two stages of two ranks, or as many ranks as asked for, with validation.
Job pipeline_job(int zero_stage, int data_ranks = 2) {
  Job job = sharded_job(zero_stage, 2 * data_ranks);
  job.pipeline.stages = 2;
  job.batch = {4 * 2 * data_ranks, 2, 4};
  job.eval_interval = 1;
  return job;
}

int32_t& wait_of(Plan& plan, size_t issue, int32_t channel) {
  return plan.waits[issue * static_cast<size_t>(plan.channels) + static_cast<size_t>(channel)];
}

// Takes an issue out of a plan's order.
void drop(Plan& plan, size_t issue) {
  plan.order.erase(plan.order.begin() + static_cast<ptrdiff_t>(issue));
  const auto waits = plan.waits.begin() + static_cast<ptrdiff_t>(issue) * plan.channels;
  plan.waits.erase(waits, waits + plan.channels);
}

}  // namespace

TEST_CASE("ranks fit together: every ZeRO stage, shards, pipelines and kinds of steps") {
  for (const int stage : {0, 1, 2, 3})
    for (const int data_ranks : {1, 3})
      CHECK_NOTHROW(verify_all(ranks_of(pipeline_job(stage, data_ranks))));
  Job shards = sharded_job(3, 6);
  shards.shards.ranks = 3;
  CHECK_NOTHROW(verify_all(ranks_of(shards)));
  shards.pipeline.stages = 2;
  shards.ranks = 12;
  CHECK_NOTHROW(verify_all(ranks_of(shards)));
  for (const OptimizerKind kind : {OptimizerKind::muon, OptimizerKind::lamb}) {
    Job job = sharded_job(2, 5);
    job.optimizer.kind = kind;
    CHECK_NOTHROW(verify_all(ranks_of(job)));
  }
  Job signs = sharded_job(1, 3);
  signs.reduce = ReduceMode::boundary;
  signs.optimizer.kind = OptimizerKind::one_bit_lamb;
  CHECK_NOTHROW(verify_all(ranks_of(signs)));
}

TEST_CASE("ranks fit together: two collectives of one rank in another order are found") {
  for (const int stage : {1, 3}) {
    std::vector<RankPlan> ranks = ranks_of(sharded_job(stage, 3));
    CHECK_NOTHROW(compare_training(ranks));
    CHECK_NOTHROW(compare_collectives(ranks[0], ranks[1]));
    Plan& plan = ranks[1].train;
    const std::vector<size_t> gathers = issues_of(plan, OpKind::all_gather);
    std::swap(plan.order[gathers[0]], plan.order[gathers[1]]);
    CHECK_THROWS_WITH(verify_all(ranks), Catch::Contains("exchanges all_gather") &&
                                             Catch::Contains("rank 1 of stage 0"));
    CHECK_THROWS_WITH(compare_training(ranks),
                      Catch::Contains("ranks 0 and 1 have planned different collectives"));
    CHECK_THROWS_WITH(compare_collectives(ranks[2], ranks[1]),
                      Catch::Contains("ranks 2 and 1 have planned different collectives"));
  }
}

TEST_CASE("ranks fit together: a collective that one rank leaves out is found") {
  std::vector<RankPlan> ranks = ranks_of(sharded_job(1, 3));
  drop(ranks[2].train, issues_of(ranks[2].train, OpKind::all_gather).back());
  CHECK_THROWS_AS(verify_all(ranks), InternalError);
}

TEST_CASE("ranks fit together: a collective of which one rank waits for another is found") {
  std::vector<RankPlan> ranks = ranks_of(pipeline_job(3));
  verify_all(ranks);
  // Rank 0 sends its first activations when it has gathered, and rank 1 of the stage gathers when it has the first
  // gradient, which needs its activations.
  Plan &first = ranks[0].train, &second = ranks[1].train;
  wait_of(first, issues_of(first, OpKind::send).front(), kStateChannel) = 1;
  wait_of(second, issues_of(second, OpKind::all_gather).front(),
          channel_of(second.place, Link::from_next)) = 1;
  CHECK_THROWS_WITH(verify_all(ranks), Catch::Contains("waits for ever"));
}

TEST_CASE("ranks fit together: messages of a validation that differ are found") {
  std::vector<RankPlan> ranks = ranks_of(pipeline_job(0, 1));
  verify_all(ranks);
  Plan& validate = ranks[1].validate;
  SECTION("another message") {
    const size_t issue = issues_of(validate, OpKind::recv).front();
    const BufferId received =
        validate.program.instructions[static_cast<size_t>(validate.order[issue].instruction)]
            .writes[0];
    validate.program.at(received).name = "another";
    CHECK_THROWS_WITH(verify_all(ranks), Catch::Contains("exchanges another"));
  }
  SECTION("a message that nobody takes") {
    drop(validate, issues_of(validate, OpKind::recv).front());
    CHECK_THROWS_AS(verify_all(ranks), InternalError);
  }
}

TEST_CASE("ranks fit together: a run that starts compares the checksums of every channel") {
  Job job = pipeline_job(3, 4);
  job.shards.ranks = 2;
  const std::vector<RankPlan> ranks = ranks_of(job);
  CHECK_NOTHROW(compare_training(ranks, job.pipeline.schedule));
  // Rank 6 (number 2 of the second stage) takes a collective of its shard or replica group, or a message, for another.
  for (const Channel channel : {Channel{.group = kShardAxes}, Channel{.group = Axis::replica},
                                Channel{.link = Link::from_previous}}) {
    std::vector<RankPlan> others = ranks;
    Plan& plan = others[6].train;
    const auto on_channel = [&](const Issue& issue) {
      const Instruction& op = plan.program.instructions[static_cast<size_t>(issue.instruction)];
      return is_collective(op.op) && plan.comm_channel(op) == channel;
    };
    const auto issue = std::ranges::find_if(plan.order, on_channel);
    REQUIRE(issue != plan.order.end());
    issue->micro += 1;
    CAPTURE(issue->instruction);
    CHECK_THROWS_WITH(
        compare_training(others, job.pipeline.schedule),
        Catch::Contains(channel.link ? "different messages" : "different collectives"));
  }
}
