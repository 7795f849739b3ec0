// Pipelines between devices: messages and sums travel through the host, and must give the CPU's bits. mpirun starts
// this program on 2 and 4 ranks.
#include "runtime/comm/world.h"
#include "tests/engine/device/submitted_library.h"
#include "tests/engine/stages/pipeline_jobs.h"
#include "tests/support/sample.h"

using namespace dstrain;

TEST_CASE("a pipeline between devices of their own changes no bit") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  Sample sample(2);
  for (const int stages : stages_on(*world))
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const int zero_stage : {0, 1, 2, 3})
        for (const PipelineSchedule schedule :
             {PipelineSchedule::gpipe, PipelineSchedule::one_f_one_b, PipelineSchedule::interleaved,
              PipelineSchedule::zb_h1, PipelineSchedule::zb_v}) {
          Job job = pipeline_job(dtype, world->size() / stages, stages, 4);
          if ((job.data_ranks() == 1 && zero_stage > 0) || !sample.takes()) continue;
          job.zero_stage = zero_stage;
          job.reduce = usual_reduce(zero_stage);
          job.gather = {.param_persistence = 0, .max_reuse_distance = 0};
          job.pipeline.schedule = schedule;
          job.pipeline.virtual_stages =
              schedule == PipelineSchedule::interleaved || schedule == PipelineSchedule::zb_v ? 2
                                                                                              : 1;
          if (stages * chunks_of(job.pipeline) > 5) continue;
          const RunResult expected = run_steps(job, data, *world, 4);
          for (const bool overlap : {false, true}) {
            job.overlap_comm = overlap;
            INFO(describe(job) << ", schedule " << schedule_name(schedule));
            const RunResult result = run_steps(job, data, *world, 4, 1, submitted_backend());
            CHECK(difference(expected, result, *world) == "");
            CHECK(result.sent_per_step == expected.sent_per_step);
          }
        }
}

TEST_CASE("a padded vocabulary changes no bit of a pipeline, tied or not") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  Sample sample(2);
  for (const int stages : stages_on(*world))
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const bool tied : {false, true}) {
        if (!sample.takes()) continue;
        Job job = pipeline_job(dtype, world->size() / stages, stages, 4);
        job.model.set("tied_head", tied);
        job.pipeline.schedule = PipelineSchedule::one_f_one_b;
        const RunResult expected = run_steps(job, data, *world, 4);
        INFO(describe(job));
        const RunResult result = run_steps(job, data, *world, 4, 1, submitted_backend(true, 8));
        CHECK(difference(expected, result, *world) == "");
      }
}
