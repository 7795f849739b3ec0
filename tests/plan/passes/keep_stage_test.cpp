#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "runtime/core/error.h"
#include "runtime/plan/placement/copies.h"
#include "runtime/plan/proof/verify.h"
#include "runtime/plan/waits.h"
#include "tests/plan/stage_plans.h"
#include "tests/support/sample.h"

using namespace dstrain;

namespace {

// Six layers (embedding, four blocks, head) and six micro-batches.
Job pipeline_job(int stages, int data_ranks = 1, int zero_stage = 0) {
  Job job = sharded_job(zero_stage, stages * data_ranks);
  job.pipeline.stages = stages;
  job.batch = {12 * data_ranks, 2, 6};
  return job;
}

// The names and micro-batches of what travels on a channel, in order.
std::vector<std::pair<std::string, int>> messages(const Plan& plan, Link link) {
  const int32_t channel = channel_of(plan.place, link);
  std::vector<std::pair<std::string, int>> list;
  for (const Issue& issue : plan.order) {
    const Instruction& op = plan.program.instructions[static_cast<size_t>(issue.instruction)];
    if (op.op != OpKind::send && op.op != OpKind::recv) continue;
    const BufferId id = op.op == OpKind::send ? op.reads[0] : op.writes[0];
    if (op.channel == channel) list.emplace_back(plan.program.at(id).name, issue.micro);
  }
  return list;
}

}  // namespace

TEST_CASE("the stages of a pipeline share the work and the weights of the whole model") {
  const Plan whole = plan_of(pipeline_job(1), 0).train;
  for (const PipelineSchedule schedule : {PipelineSchedule::gpipe, PipelineSchedule::one_f_one_b})
    for (const int stages : {2, 3, 4, 6}) {
      Job job = pipeline_job(stages);
      job.pipeline.schedule = schedule;
      std::multiset<std::string> work;
      std::vector<std::string> parameters;
      for (const Plan& plan : plans_of(job)) {
        work.merge(work_of(plan));
        for (const Parameter& p : plan.program.parameters) parameters.push_back(p.name);
        CHECK(plan.program.model.size() == whole.program.parameters.size());
      }
      INFO(stages << " stages");
      CHECK(work == work_of(whole));
      std::vector<std::string> expected;
      for (const Parameter& p : whole.program.parameters) expected.push_back(p.name);
      CHECK(parameters == expected);
    }
}

TEST_CASE("every message of a stage has its counterpart, in the same order") {
  for (const PipelineSchedule schedule : {PipelineSchedule::gpipe, PipelineSchedule::one_f_one_b})
    for (const int zero_stage : {0, 1, 2, 3})
      for (const int stages : {2, 3, 5}) {
        Job job = pipeline_job(stages, 2, zero_stage);
        job.pipeline.schedule = schedule;
        const std::vector<Plan> plans = plans_of(job);
        for (size_t s = 0; s + 1 < plans.size(); ++s) {
          const auto activations = messages(plans[s], Link::to_next);
          CHECK(activations.size() == 6);
          CHECK(activations == messages(plans[s + 1], Link::from_previous));
          CHECK(messages(plans[s], Link::from_next) == messages(plans[s + 1], Link::to_previous));
          CHECK(messages(plans[s], Link::from_next).size() == 6);
        }
        CHECK(messages(plans.front(), Link::from_previous).empty());
        CHECK(messages(plans.back(), Link::to_next).empty());
      }
}

TEST_CASE("1F1B keeps the activations of min(stages - stage, micro-batches), GPipe those of all") {
  for (const int stages : {2, 3, 4, 6}) {
    Job job = pipeline_job(stages);
    const auto kept = [&](int s) {
      const Plan plan = plan_of(job, s).train;
      const std::vector<Copies> copies = copies_of(plan);
      std::set<BufferId> received;
      for (const Instruction& op : plan.program.instructions)
        if (op.op == OpKind::recv) received.insert(op.writes[0]);
      int64_t most = 1;
      for (size_t b = 0; b < copies.size(); ++b) {
        const Buffer& buffer = plan.program.buffers[b];
        // One more copy of a message, so that it may wait or come early.
        const bool travels = buffer.shared || received.contains(static_cast<BufferId>(b));
        if (buffer.lifetime == Lifetime::micro && !travels) most = std::max(most, copies[b].count);
      }
      return most;
    };
    for (int s = 0; s < stages; ++s) {
      const std::string last = plan_of(job, s).train.program.units.back().name;
      if (last == "embedding" || last == "head") continue;  // keeps no activations of its own alone
      INFO("stage " << s << " of " << stages);
      job.pipeline.schedule = PipelineSchedule::one_f_one_b;
      CHECK(kept(s) == std::min<int64_t>(stages - s, 6));
      job.pipeline.schedule = PipelineSchedule::gpipe;
      CHECK(kept(s) == 6);
    }
  }
}

TEST_CASE("what a phase receives is posted before the phase in front of it") {
  const Plan plan = plan_of(pipeline_job(3), 1).train;
  // The issues of the first instruction of each task besides receives, and of its receive.
  std::vector<size_t> begins, receives(plan.tasks.size(), SIZE_MAX);
  std::map<std::pair<Phase, int32_t>, size_t> task_of;
  for (size_t s = 0; s < plan.tasks.size(); ++s)
    task_of[{plan.tasks[s].phase, plan.tasks[s].micro}] = s;
  begins.assign(plan.tasks.size(), SIZE_MAX);
  for (size_t i = 0; i < plan.order.size(); ++i) {
    const Instruction& op = op_at(plan, i);
    if (op.when != When::every_micro) continue;
    const size_t task = task_of.at({op.phase, plan.order[i].micro});
    auto& list = op.op == OpKind::recv ? receives : begins;
    list[task] = std::min(list[task], i);
  }
  for (size_t s = 0; s < begins.size(); ++s) {
    CHECK(receives[s] < begins[s == 0 ? 0 : s - 1]);
    if (s > 1) CHECK(receives[s] > begins[s - 2]);
  }
}

TEST_CASE("the stages of a pipeline fit together, whatever is recomputed or sharded") {
  Sample sample(4);
  for (const PipelineSchedule schedule : {PipelineSchedule::gpipe, PipelineSchedule::one_f_one_b})
    for (const int stages : {2, 3, 4, 6})
      for (const int micro_batches : {1, 2, 5, 8})
        for (const int zero_stage : {0, 3})
          for (const int64_t interval : {0, 1, 2, 3}) {
            if (!sample.takes()) continue;
            Job job = pipeline_job(stages, 2, zero_stage);
            job.pipeline.schedule = schedule;
            job.batch = {4 * micro_batches, 2, micro_batches};
            if (interval > 0) job.recompute = {RecomputeMode::interval, interval};
            INFO(stages << " stages, " << micro_batches << " micro-batches, interval " << interval);
            const std::vector<Plan> plans = plans_of(job);
            CHECK_NOTHROW(verify_together(plans));
            for (const Plan& plan : plans)
              CHECK(plan.tasks.size() == 2 * static_cast<size_t>(micro_batches));
          }
}

TEST_CASE("what does not fit together is found") {
  const std::vector<Plan> sound = plans_of(pipeline_job(3));
  const auto issue_of = [](const Plan& plan, OpKind kind, size_t n) {
    return issues_of(plan, kind)[n];
  };
  SECTION("a message that nobody takes") {
    std::vector<Plan> plans = sound;
    const size_t last = issues_of(plans[1], OpKind::recv).back();
    plans[1].order.erase(plans[1].order.begin() + static_cast<ptrdiff_t>(last));
    const auto waits = plans[1].waits.begin() + static_cast<ptrdiff_t>(last) * plans[1].channels;
    plans[1].waits.erase(waits, waits + plans[1].channels);
    CHECK_THROWS_AS(verify_together(plans), InternalError);
  }
  SECTION("two micro-batches that are received in another order") {
    std::vector<Plan> plans = sound;
    const size_t a = issue_of(plans[2], OpKind::recv, 0), b = issue_of(plans[2], OpKind::recv, 1);
    std::swap(plans[2].order[a], plans[2].order[b]);
    CHECK_THROWS_WITH(verify_together(plans), Catch::Contains("exchanges"));
  }
  SECTION("stages that wait for each other") {
    std::vector<Plan> plans = sound;
    // The first stage waits for the gradient of its first micro-batch before it sends anything.
    const auto channels = static_cast<size_t>(plans[0].channels);
    const int32_t from_next = channel_of(plans[0].place, Link::from_next);
    plans[0]
        .waits[issue_of(plans[0], OpKind::send, 0) * channels + static_cast<size_t>(from_next)] = 1;
    CHECK_THROWS_WITH(verify_together(plans), Catch::Contains("waits for ever"));
  }
  SECTION("a buffer with a copy too few") {
    Plan plan = sound[0];
    bool found = false;
    for (size_t b = 0; b < plan.address.size(); ++b)
      if (plan.program.buffers[b].lifetime == Lifetime::micro && plan.address[b].copies == 3 &&
          !found) {
        --plan.address[b].copies;
        found = true;
      }
    REQUIRE(found);
    order_communication(plan, false, false);
    CHECK_THROWS_AS(verify(plan), InternalError);
  }
}
