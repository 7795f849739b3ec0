#include "runtime/plan/estimates/step_time.h"

#include <catch2/catch.hpp>
#include <numeric>

#include "runtime/core/error.h"
#include "tests/plan/plans.h"

using namespace dstrain;

namespace {

const MachineRates kCpu = rates_of(DeviceChoice::cpu);

Job pipeline_job(int stages) {
  Job job = sharded_job(0, stages);
  job.pipeline.stages = stages;
  job.batch = {12, 2, 6};
  return job;
}

double sum(const PhaseSeconds& times) {
  return std::accumulate(times.begin(), times.end(), 0.0);
}

}  // namespace

TEST_CASE("step time: the phases of all micro-batches are the step but for its begin and end") {
  for (const int stages : {1, 2, 3}) {
    const Job job = pipeline_job(stages);
    for (int stage = 0; stage < stages; ++stage) {
      const Plan plan = plan_of(job, stage).train;
      const PhaseSeconds times = phase_seconds(plan, 0, kCpu);
      CHECK(times[0] > 0);
      CHECK(times[1] > times[0]);
      CHECK(times[2] == 0);
      double rest = static_cast<double>(wire_bytes(plan)) / 5e9;
      for (const Issue& issue : plan.order) {
        const Instruction& op = plan.program.instructions[static_cast<size_t>(issue.instruction)];
        if (op.when != When::every_micro) rest += instruction_seconds(plan.program, op, kCpu);
      }
      CHECK(step_seconds(plan, kCpu) == Approx(6 * sum(times) + rest));
    }
  }
}

TEST_CASE("step time: a message takes its bytes at the rate of the wire") {
  const Job job = pipeline_job(2);
  // The activations of 2 samples of 8 tokens with 32 channels, in f32.
  for (const int stage : {0, 1})
    CHECK(message_seconds(plan_of(job, stage).train, kCpu) == Approx(2 * 8 * 32 * 4 / 5e9));
  CHECK(message_seconds(plan_of(pipeline_job(1), 0).train, kCpu) == 0);
}

TEST_CASE(
    "step time: a pipeline's step has the work of its stages and ends after the longest one") {
  const Job job = pipeline_job(3);
  std::vector<Plan> plans;
  for (int stage = 0; stage < 3; ++stage) plans.push_back(plan_of(job, stage).train);
  const std::vector<const Plan*> stages = {&plans[0], &plans[1], &plans[2]};
  const PipelineOrders orders = pipeline_orders(job.pipeline.schedule, 3, 1, 6);
  const PipelineTimes times = pipeline_times(orders, stages, kCpu);
  CHECK_FALSE(times.error.has_value());
  for (const Plan* plan : stages) CHECK(times.length > 6 * sum(phase_seconds(*plan, 0, kCpu)));
  CHECK((times.bubble > 0 && times.bubble < 1));

  const std::vector<const Plan*> two = {&plans[0], &plans[1]};
  CHECK_THROWS_AS(pipeline_times(orders, two, kCpu), InternalError);
  const PipelineOrders chunks = pipeline_orders(PipelineSchedule::zb_v, 3, 2, 6);
  CHECK_THROWS_AS(pipeline_times(chunks, stages, kCpu), InternalError);
}
