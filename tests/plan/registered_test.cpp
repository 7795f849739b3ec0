// Registered buffers and several losses: what a plan has of them.
#include <catch2/catch.hpp>

#include "runtime/core/error.h"
#include "tests/plan/stage_plans.h"
#include "tests/support/mixed_model.h"

using namespace dstrain;

namespace {

Job registered_job(int ranks) {
  Job job = sharded_job(0, ranks);
  job.model = MixedModel{};
  return job;
}

}  // namespace

TEST_CASE(
    "sums of a registered buffer are added over ranks once a step, and change it at the end") {
  for (const int ranks : {1, 2}) {
    const Plan plan = plan_of(registered_job(ranks), ranks - 1).train;
    const Program& p = plan.program;
    REQUIRE(p.registered.size() == 1);
    CHECK(p.at(p.registered[0].values).lifetime == Lifetime::persistent);
    CHECK(count_ops(plan, OpKind::update_buffer) == 1);
    const size_t finish = issues_of(plan, OpKind::finish_gradients)[0];
    const size_t update = issues_of(plan, OpKind::update_buffer)[0];
    CHECK(update > finish);
    size_t sums = 0;
    for (size_t i = 0; i < plan.order.size(); ++i)
      if (op_at(plan, i).op == OpKind::all_reduce && group_of(plan, op_at(plan, i)) == "buffers") {
        ++sums;
        CHECK(i < finish);
      }
    CHECK(sums == (ranks == 1 ? 0 : 1));
    const auto attrs = std::get<UpdateBufferAttrs>(op_at(plan, update).attrs);
    CHECK(attrs.keep == 0.75f);
    CHECK(attrs.share == -0.05f / static_cast<float>(4 * ranks));
  }
}

TEST_CASE("recompute adds nothing to a registered buffer, and validation leaves it alone") {
  Job job = registered_job(1);
  const Plan plain = plan_of(job, 0).train;
  for (const RecomputeMode mode : {RecomputeMode::interval, RecomputeMode::selective}) {
    job.recompute = {mode, 1};
    const RankPlan plans = plan_of(job, 0);
    size_t to_sum = 0;
    const Program& p = plans.train.program;
    for (const Instruction& op : p.instructions)
      for (const BufferId id : op.writes) to_sum += id == p.registered[0].sum;
    CHECK(to_sum == 1);
    CHECK(count_ops(plans.train, OpKind::cross_entropy) == 2);
    CHECK(count_ops(plans.validate, OpKind::sum_rows) == 0);
    CHECK(count_ops(plans.validate, OpKind::update_buffer) == 0);
    CHECK(plans.validate.program.find("buffer:hidden.1.mean") != kNone);
  }
}

TEST_CASE("a stage of a pipeline has the buffers and the losses of its own layers") {
  Job job = registered_job(2);
  job.batch = {4, 2, 2};
  job.pipeline.stages = 2;
  job.pipeline.first_layers = {0, 3};
  const std::vector<Plan> plans = plans_of(job);
  verify_together(plans);
  for (const int stage : {0, 1}) {
    const Program& p = plans[static_cast<size_t>(stage)].program;
    REQUIRE(p.registered.size() == 1);
    CHECK((p.registered[0].values != kNone) == (stage == 0));
    REQUIRE(p.losses.size() == 2);
    CHECK((p.losses[0].sum != kNone) == (stage == 0));
    CHECK((p.losses[1].sum != kNone) == (stage == 1));
    CHECK(count_ops(plans[static_cast<size_t>(stage)], OpKind::update_buffer) ==
          (stage == 0 ? 1 : 0));
  }
}

TEST_CASE("several losses are not computed in pieces") {
  CHECK_FALSE(ModelConfig(MixedModel{}).measures().divides_loss);
  CHECK(ModelConfig(MixedModel{.two_losses = false}).measures().divides_loss);
  Job job = registered_job(1);
  job.loss_chunks = 2;
  CHECK_THROWS_AS(plan_of(job, 0), InternalError);
}
