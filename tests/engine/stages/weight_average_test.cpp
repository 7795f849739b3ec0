// The average of the weights over steps (dstrain.ema): its definition, and equal bits however ranks divide the run.
// mpirun starts this program on 1 to 4 ranks.
#include <catch2/catch.hpp>
#include <cmath>

#include "runtime/comm/world.h"
#include "tests/engine/stages/pipeline_jobs.h"
#include "tests/support/sample.h"
#include "tests/support/temp_dir.h"

using namespace dstrain;

namespace {

constexpr float kDecay = 0.9f;

Job average_job(DType dtype, int data_ranks, int stages = 1) {
  Job job = pipeline_job(dtype, data_ranks, stages, 2);
  job.optimizer.ema_decay = kDecay;
  job.gather = {.param_persistence = 0, .max_reuse_distance = 0};
  return job;
}

}  // namespace

TEST_CASE(
    "the average begins with the weights of the first update, and each update moves it by a "
    "share") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  constexpr int kUpdates = 3;
  for (const OptimizerKind optimizer : {OptimizerKind::adam, OptimizerKind::sgd}) {
    Job job = average_job(DType::f32, world->size());
    job.optimizer.kind = optimizer;
    Job plain = job;
    plain.optimizer.ema_decay = 0;
    std::vector<float> expected;
    for (int steps = 1; steps <= kUpdates; ++steps) {
      const RunResult result = run_steps(job, data, *world, steps);
      RunResult without = run_steps(plain, data, *world, steps);
      CHECK(without.averages.empty());
      without.averages = result.averages;
      CHECK(difference(without, result, *world) == "");
      if (steps == 1) expected = result.weights;
      for (size_t i = 0; i < expected.size() && steps > 1; ++i)
        expected[i] = std::fma(kDecay, expected[i], (1 - kDecay) * result.weights[i]);
      CHECK(result.averages == expected);
      CHECK((steps == 1 || world->rank() > 0 || result.averages != result.weights));
    }
  }
}

TEST_CASE("a step that is skipped leaves the average as it is") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  const Job job = average_job(DType::f16, world->size());  // its first steps are skipped
  const RunResult result = run_steps(job, data, *world, kSteps);
  const auto applied = static_cast<int>(std::ranges::count(result.skipped, 0));
  REQUIRE(applied > 1);
  REQUIRE(applied < kSteps);
  std::vector<float> expected;
  for (int steps = kSteps - applied + 1; steps <= kSteps; ++steps) {
    const RunResult part = run_steps(job, data, *world, steps);
    if (expected.empty())
      expected = part.weights;
    else
      for (size_t i = 0; i < expected.size(); ++i)
        expected[i] = std::fma(kDecay, expected[i], (1 - kDecay) * part.weights[i]);
  }
  CHECK(result.averages == expected);
}

TEST_CASE("averages have the same bits at every stage, with offload and through a pipeline") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  const TempDir drive;
  Sample sample(2);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Job job = average_job(dtype, world->size());
    job.reduce = ReduceMode::boundary;
    job.offload.nvme_paths = {drive.path()};
    const RunResult expected = run_steps(job, data, *world, kSteps);
    for (const int stage : {1, 2, 3})
      for (const OffloadTo to : {OffloadTo::none, OffloadTo::cpu, OffloadTo::nvme})
        for (const OffloadTo parameters : {OffloadTo::none, OffloadTo::cpu, OffloadTo::nvme}) {
          if (parameters != OffloadTo::none && (stage < 3 || to == OffloadTo::none)) continue;
          if (to != OffloadTo::none && !sample.takes()) continue;
          job.zero_stage = stage;
          job.offload.optimizer = to;
          job.offload.parameters = parameters;
          INFO(describe(job) << ", parameters " << static_cast<int>(parameters));
          const RunResult result = run_steps(job, data, *world, kSteps);
          CHECK(difference(expected, result, *world) == "");
          CHECK(result.sent_per_step == result.planned_to_send);
        }
    for (const int stages : stages_on(*world)) {
      Job cut = average_job(dtype, world->size() / stages, stages);
      cut.zero_stage = cut.data_ranks() > 1 ? 1 : 0;
      RunResult whole = without_pipeline(cut, data, *world);
      if (world->rank() != 0) whole.averages.clear();
      compare(whole, cut, data, *world);
    }
  }
}
