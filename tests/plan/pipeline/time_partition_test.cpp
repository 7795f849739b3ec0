// The partition by time divides the seconds that the timeline draws.
#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "runtime/plan/estimates/step_time.h"
#include "tests/plan/plans.h"

using namespace dstrain;

namespace {

// Returns the seconds of a micro-batch on the stage that takes longest.
double longest_stage(const Job& job, DeviceChoice device) {
  PlanInputs inputs = fake_inputs();
  inputs.rates = rates_of(device);
  double longest = 0;
  for (const RankPlan& stage : draft_stage_plans(job, 0, inputs)) {
    const PhaseSeconds times = phase_seconds(stage.train, 0, inputs.rates);
    longest = std::max(longest, std::accumulate(times.begin(), times.end(), 0.0));
  }
  return longest;
}

// Returns the shortest longest stage of all divisions into whole layers.
double best_of_whole_layers(Job job, DeviceChoice device) {
  job.pipeline.partition = "list";
  const int64_t layers = job.model.integer("n_layer") + 2;
  double best = 1e300;
  const std::function<void(std::vector<int64_t>)> divide = [&](std::vector<int64_t> first) {
    if (static_cast<int>(first.size()) == job.pipeline.stages) {
      job.pipeline.first_layers = first;
      best = std::min(best, longest_stage(job, device));
      return;
    }
    for (int64_t next = first.back() + 1; next < layers; ++next) {
      first.push_back(next);
      divide(first);
      first.pop_back();
    }
  };
  divide({0});
  return best;
}

}  // namespace

TEST_CASE("partition by time: no division into whole layers has a shorter longest stage") {
  for (const int stages : {2, 3})
    for (const int64_t vocabulary : {17, 400, 3000})
      for (const DType dtype : {DType::f32, DType::bf16})
        for (const bool recomputes : {false, true})
          for (DeviceChoice device : {DeviceChoice::cpu, DeviceChoice::cuda}) {
            Job job = sharded_job(0, stages);
            job.model.set("n_layer", 5);
            job.model.set("n_embd", 64);
            job.model.set("vocab_size", vocabulary);
            job.dtype = job.wire_dtype = dtype;
            if (recomputes) job.recompute = {RecomputeMode::interval, 1};
            job.batch = {8, 2, 4};
            job.pipeline.stages = stages;
            job.pipeline.partition = "time";
            CAPTURE(stages, vocabulary, name_of(dtype), recomputes, device);
            CHECK(longest_stage(job, device) <= 1.000001 * best_of_whole_layers(job, device));
          }
}
