// Stages with several parts of the model, and split backward passes.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "runtime/core/error.h"
#include "runtime/plan/build_model.h"
#include "runtime/plan/passes/passes.h"
#include "runtime/plan/pipeline/simulate.h"
#include "runtime/plan/placement/copies.h"
#include "runtime/plan/proof/verify.h"
#include "runtime/plan/waits.h"
#include "tests/plan/pipeline/pipelines.h"
#include "tests/plan/stage_plans.h"
#include "tests/support/models.h"
#include "tests/support/sample.h"

using namespace dstrain;

namespace {

// A job of `layers` layers, with the embedding and the head.
Job chunks_job(const PipelineCase& c, int64_t layers, int data_ranks = 1, int zero_stage = 0) {
  Job job = sharded_job(zero_stage, c.stages * data_ranks);
  job.model.set("n_layer", layers - 2);
  job.pipeline.stages = c.stages;
  job.pipeline.schedule = c.schedule;
  job.pipeline.virtual_stages = c.virtual_stages;
  job.pipeline.partition = "uniform";
  job.batch = {int64_t{2} * data_ranks * c.micros, 2, c.micros};
  return job;
}

const std::vector<PipelineCase> kCases = {
    {PipelineSchedule::interleaved, 2, 2, 6}, {PipelineSchedule::interleaved, 3, 3, 6},
    {PipelineSchedule::interleaved, 2, 4, 4}, {PipelineSchedule::zb_h1, 2, 1, 5},
    {PipelineSchedule::zb_h1, 4, 1, 6},       {PipelineSchedule::zb_v, 2, 2, 5},
    {PipelineSchedule::zb_v, 3, 2, 7},        {PipelineSchedule::zb_v, 4, 2, 2}};
constexpr int64_t kLayers = 9;

size_t count_issues(const Plan& plan, OpKind kind) {
  return issues_of(plan, kind).size();
}

}  // namespace

TEST_CASE("chunks: the stages share the work and the weights of the whole model") {
  for (const PipelineCase& c : kCases) {
    INFO(c.text());
    Job job = chunks_job(c, kLayers);
    std::multiset<std::string> work;
    std::set<int> parameters;
    for (const Plan& plan : plans_of(job)) {
      work.merge(work_of(plan));
      for (const Parameter& p : plan.program.parameters) CHECK(parameters.insert(p.index).second);
      CHECK(std::ranges::is_sorted(plan.program.parameters, {}, &Parameter::index));
      CHECK(std::ranges::is_sorted(plan.program.units, {}, &Unit::first_sublayer));
    }
    job.pipeline = {};
    job.ranks = 1;
    const Plan whole = plan_of(job, 0).train;
    CHECK(work == work_of(whole));
    CHECK(parameters.size() == whole.program.parameters.size());
  }
}

TEST_CASE("chunks: a value travels where the next part is on another stage") {
  for (const PipelineCase& c : kCases) {
    INFO(c.text());
    const int parts = c.stages * c.virtual_stages;
    int borders = 0;
    for (int part = 0; part + 1 < parts; ++part)
      borders += chunk_of_part(c.schedule, c.stages, part).stage !=
                 chunk_of_part(c.schedule, c.stages, part + 1).stage;
    size_t sent = 0, received = 0;
    for (const Plan& plan : plans_of(chunks_job(c, kLayers))) {
      sent += count_issues(plan, OpKind::send);
      received += count_issues(plan, OpKind::recv);
    }
    CHECK(sent == static_cast<size_t>(2 * borders * c.micros));
    CHECK(received == sent);
  }
}

TEST_CASE("chunks: weight gradients are computed in a phase of their own, in ascending order") {
  for (const PipelineCase& c : kCases) {
    INFO(c.text());
    for (const Plan& plan : plans_of(chunks_job(c, kLayers))) {
      std::map<int32_t, int32_t> next;  // micro-batch, by instruction
      for (const Issue& issue : plan.order) {
        const Instruction& op = plan.program.instructions[static_cast<size_t>(issue.instruction)];
        if (op.op != OpKind::linear_weight_grad) continue;
        CHECK(op.phase == (splits_backward(c.schedule) ? Phase::weight_grad : Phase::backward));
        CHECK(issue.micro == next[issue.instruction]++);
      }
    }
  }
}

TEST_CASE("chunks: what the weight gradients read has a copy for every micro-batch in flight") {
  for (const PipelineCase& c : kCases) {
    INFO(c.text());
    for (const Plan& plan : plans_of(chunks_job(c, 16))) {
      const std::vector<int> held = in_flight(plan.tasks, c.virtual_stages);
      const std::vector<Copies> copies = copies_of(plan);
      std::vector<int64_t> most(held.size());
      for (const Instruction& op : plan.program.instructions) {
        if (op.op != OpKind::linear_weight_grad) continue;
        const auto x = static_cast<size_t>(plan.program.root(op.reads[1]));
        int64_t& kept = most[static_cast<size_t>(op.chunk)];
        if (!plan.program.buffers[x].shared) kept = std::max(kept, copies[x].count);
      }
      for (size_t chunk = 0; chunk < held.size(); ++chunk)
        if (most[chunk] > 0) CHECK(most[chunk] == held[chunk]);
    }
  }
}

TEST_CASE("chunks: a weight gradient whose operand is overwritten before it is computed is found") {
  Program program;
  Builder builder(program, {});
  const Job job = small_job();
  build_model(builder, job.model);
  backward(program);
  Program sound = program;
  CHECK_NOTHROW(split_backward(sound));
  // An input gradient that goes where the gradient lies that a weight gradient reads.
  auto& list = program.instructions;
  const auto weight = std::ranges::find(list, OpKind::linear_weight_grad, &Instruction::op);
  const auto later = std::find_if(
      weight, list.end(), [](const Instruction& op) { return op.op == OpKind::attention_grad; });
  REQUIRE(later != list.end());
  later->writes[0] = weight->reads[0];
  CHECK_THROWS_WITH(split_backward(program), Catch::Contains("overwrites"));
}

TEST_CASE("chunks: the stages fit together, whatever is recomputed or sharded") {
  Sample sample(3);
  for (const PipelineCase& c : kCases)
    for (const int zero_stage : {0, 2, 3})
      for (const int64_t interval : {0, 1, 2}) {
        if (!sample.takes()) continue;
        Job job = chunks_job(c, kLayers, 2, zero_stage);
        if (interval > 0) job.recompute = {RecomputeMode::interval, interval};
        job.eval_interval = 1;
        INFO(c.text() << ", ZeRO stage " << zero_stage << ", interval " << interval);
        CHECK_NOTHROW(verify_together(plans_of(job)));
        std::vector<Plan> validate;
        for (int s = 0; s < c.stages; ++s) validate.push_back(plan_of(job, 2 * s).validate);
        CHECK_NOTHROW(verify_together(validate));
      }
}

TEST_CASE(
    "chunks: no schedule waits for ever, up to 8 stages, 16 micro-batches and 4 parts a stage") {
  Sample sample(4);
  for (const PipelineCase& c : pipeline_cases()) {
    if (c.stages == 1 || !sample.takes()) continue;
    Job job = chunks_job(c, c.stages * c.virtual_stages + 1);
    job.model = BenchmarkModel{
        .n_layer = c.stages * c.virtual_stages + 1, .in_size = 8, .hidden_size = 8, .out_size = 8};
    INFO(c.text());
    CHECK_NOTHROW(verify_together(plans_of(job)));
  }
}

TEST_CASE("chunks: what does not fit together is found") {
  const PipelineCase c = GENERATE(PipelineCase{PipelineSchedule::interleaved, 2, 2, 4},
                                  PipelineCase{PipelineSchedule::zb_v, 2, 2, 4});
  std::vector<Plan> plans = plans_of(chunks_job(c, kLayers));
  const auto channels = static_cast<size_t>(plans[0].channels);
  INFO(c.text());
  SECTION("a message that nobody takes") {
    const size_t last = issues_of(plans[1], OpKind::recv).back();
    plans[1].order.erase(plans[1].order.begin() + static_cast<ptrdiff_t>(last));
    const auto waits = plans[1].waits.begin() + static_cast<ptrdiff_t>(last * channels);
    plans[1].waits.erase(waits, waits + static_cast<ptrdiff_t>(channels));
    CHECK_THROWS_AS(verify_together(plans), InternalError);
  }
  SECTION("two messages that are received in another order") {
    const std::vector<size_t> receives = issues_of(plans[0], OpKind::recv);
    std::swap(plans[0].order[receives[0]], plans[0].order[receives[1]]);
    CHECK_THROWS_WITH(verify_together(plans), Catch::Contains("exchanges"));
  }
  SECTION("a buffer with a copy too few, in every chunk") {
    for (int32_t chunk = 0; chunk < 2; ++chunk) {
      int found = 0;
      for (Plan plan : plans) {
        const auto held_for_several = [&](const Instruction& op) {
          return op.op == OpKind::linear && op.chunk == chunk &&
                 plan.address[static_cast<size_t>(op.writes[0])].copies > 1 &&
                 !plan.program.at(op.writes[0]).shared;
        };
        const auto op = std::ranges::find_if(plan.program.instructions, held_for_several);
        if (op == plan.program.instructions.end()) continue;
        --plan.address[static_cast<size_t>(op->writes[0])].copies;
        order_communication(plan, false, false);
        CHECK_THROWS_AS(verify(plan), InternalError);
        ++found;
      }
      CHECK(found > 0);
    }
  }
}
