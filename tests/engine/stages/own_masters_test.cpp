// 16-bit parameters that are their own masters: stages, offload and pipelines must not change the numbers of such a run.
// mpirun starts this program on 1 to 4 ranks.
#include <catch2/catch.hpp>

#include "runtime/comm/world.h"
#include "tests/engine/stages/pipeline_jobs.h"
#include "tests/support/sample.h"
#include "tests/support/temp_dir.h"

using namespace dstrain;

namespace {

// A job with such masters and with moments of this type.
Job own_masters_job(DType dtype, DType moments, int data_ranks, int stages, int64_t accumulation) {
  Job job = pipeline_job(dtype, data_ranks, stages, accumulation);
  job.optimizer.lr = 1e-2;  // steps that rounding to 16 bits leaves something of
  job.loss_scale.initial = 0x1p10;
  job.master_dtype = job.grad_dtype = dtype;
  job.state_dtype = moments;
  job.gather = {.param_persistence = 0, .max_reuse_distance = 0};
  return job;
}

// The dtypes of the run and of its moments.
const std::vector<std::pair<DType, DType>> kDtypes{
    {DType::bf16, DType::f32}, {DType::bf16, DType::bf16}, {DType::f16, DType::f32}};

}  // namespace

TEST_CASE("16-bit masters have the same bits at every stage, and learn as f32 masters do") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  for (const auto& [dtype, moments] : kDtypes)
    for (const ReduceMode reduce : {ReduceMode::boundary, ReduceMode::micro_batch}) {
      Job job = own_masters_job(dtype, moments, world->size(), 1, 2);
      job.reduce = reduce;
      const RunResult expected = run_steps(job, data, *world, kSteps);
      CHECK(difference(expected, run_steps(job, data, *world, kSteps), *world) == "");
      Job wide = job;
      wide.master_dtype = wide.state_dtype = wide.grad_dtype = DType::f32;
      const RunResult with_f32 = run_steps(wide, data, *world, kSteps);
      CHECK(difference(expected, with_f32, *world) != "");
      CHECK(expected.planned_bytes < with_f32.planned_bytes);
      CHECK(expected.loss.back() == Approx(with_f32.loss.back()).epsilon(0.02));
      for (const float weight : expected.weights) {
        const float rounded =
            dtype == DType::bf16 ? to_float(to_bf16(weight)) : to_float(to_f16(weight));
        REQUIRE(weight == rounded);
      }
      for (const int stage : {1, 2, 3}) {
        job.zero_stage = stage;
        job.overlap_comm = stage % 2 == 1;
        INFO(describe(job));
        const RunResult result = run_steps(job, data, *world, kSteps);
        CHECK(difference(expected, result, *world) == "");
        CHECK(result.sent_per_step == result.planned_to_send);
      }
    }
}

TEST_CASE("offload of 16-bit masters changes no bit, whoever updates") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  const TempDir drive;
  Sample sample(2);
  for (const auto& [dtype, moments] : kDtypes)
    for (const int stage : {0, 1, 3}) {
      Job job = own_masters_job(dtype, moments, world->size(), 1, 2);
      job.zero_stage = stage;
      job.reduce = usual_reduce(stage);
      job.offload.nvme_paths = {drive.path()};
      const RunResult expected = run_steps(job, data, *world, kSteps);
      for (const OffloadTo to : {OffloadTo::cpu, OffloadTo::nvme})
        for (const UpdateOn where : {UpdateOn::host, UpdateOn::device})
          for (const OffloadTo parameters : {OffloadTo::none, OffloadTo::cpu, OffloadTo::nvme}) {
            if (to == OffloadTo::nvme && where == UpdateOn::device) continue;
            if (parameters != OffloadTo::none && stage < 3) continue;
            if (!sample.takes()) continue;
            Job moved = job;
            moved.offload.optimizer = to;
            moved.offload.optimizer_on = where;
            moved.offload.parameters = parameters;
            if (stage == 0) moved.offload.ratio = 0.5;
            INFO(describe(moved) << ", parameters " << static_cast<int>(parameters));
            const RunResult result = run_steps(moved, data, *world, kSteps);
            CHECK(difference(expected, result, *world) == "");
            CHECK(result.planned_host_bytes > 0);
          }
    }
}

TEST_CASE("a pipeline of 16-bit masters has the bits of one stage") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  for (const int stages : stages_on(*world))
    for (const auto& [dtype, moments] : kDtypes) {
      Job job = own_masters_job(dtype, moments, world->size() / stages, stages, 3);
      job.zero_stage = job.data_ranks() > 1 ? 1 : 0;
      job.pipeline.partition = "memory";
      compare(without_pipeline(job, data, *world), job, data, *world);
    }
}
