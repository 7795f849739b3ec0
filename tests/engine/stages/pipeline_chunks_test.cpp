// A pipeline whose stages have several parts of the model, or whose backward passes are split, is the same run as one
// without: bit for bit, at the same number of data-parallel ranks. mpirun starts this program on 2 to 4 ranks.
#include "runtime/comm/world.h"
#include "tests/engine/stages/pipeline_jobs.h"
#include "tests/support/models.h"
#include "tests/support/sample.h"

using namespace dstrain;

namespace {

// The pipelines of `stages` stages that `layers` layers and the micro-batches have room for, of schedules that have
// several parts on a stage or split the backward pass.
std::vector<PipelineConfig> pipelines(int stages, int64_t layers, int64_t micro_batches) {
  std::vector<PipelineConfig> list;
  for (const PipelineSchedule schedule :
       {PipelineSchedule::interleaved, PipelineSchedule::zb_h1, PipelineSchedule::zb_v})
    for (int chunks = 1; chunks <= 4; ++chunks)
      if (stages * chunks <= layers &&
          !schedule_error(schedule, stages, chunks, static_cast<int>(micro_batches)))
        list.push_back({stages, schedule, chunks, "parameters", {}});
  return list;
}

}  // namespace

TEST_CASE("several parts on a stage and split backward passes change no bit, at any ZeRO stage") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  constexpr int64_t kLayers = 9;
  Sample sample(3);
  for (const int stages : stages_on(*world))
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const ReduceMode reduce : {ReduceMode::boundary, ReduceMode::micro_batch}) {
        const int64_t micro_batches = stages == 4 ? 4 : 6;
        Job job = pipeline_job(dtype, world->size() / stages, stages, micro_batches);
        job.model.set("n_layer", kLayers - 2);
        job.reduce = reduce;
        const RunResult expected = without_pipeline(job, data, *world);
        int turn = static_cast<int>(reduce);
        for (const PipelineConfig& pipeline : pipelines(stages, kLayers, micro_batches)) {
          ++turn;
          for (const int zero_stage : {0, 1, 2, 3}) {
            // Every stage at one of the ways to reduce, at least.
            if (job.data_ranks() == 1 ? zero_stage > 0 : (zero_stage + turn) % 2 != 0) continue;
            if (!sample.takes()) continue;
            job.pipeline = pipeline;
            job.zero_stage = zero_stage;
            job.overlap_comm = (zero_stage / 2 + turn) % 2 == 0;
            job.gather = {.param_persistence = 0,
                          .max_reuse_distance = zero_stage == 3 && job.overlap_comm ? 100000 : 0};
            compare(expected, job, data, *world);
          }
        }
      }
}

TEST_CASE("several parts on a stage that cut layers between their sublayers change no bit") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  constexpr int64_t kLayers = 9;
  for (const int stages : stages_on(*world)) {
    Job job = pipeline_job(DType::f32, world->size() / stages, stages, stages == 4 ? 4 : 6);
    job.model.set("n_layer", kLayers - 2);
    const RunResult expected = without_pipeline(job, data, *world);
    int cuts = 0;
    for (const PipelineConfig& pipeline : pipelines(stages, kLayers, job.batch.accumulation))
      for (const RecomputeConfig& recompute :
           {RecomputeConfig{}, {RecomputeMode::selective, 0}, {RecomputeMode::interval, 2}}) {
        job.pipeline = pipeline;
        job.pipeline.partition = recompute.interval == 0 ? "memory" : "time";
        job.recompute = recompute;
        job.zero_stage = job.data_ranks() > 1 ? 3 : 0;
        cuts += cuts_a_layer(job);
        compare(expected, job, data, *world);
      }
    CHECK(cuts > 0);
  }
}

TEST_CASE("several parts on a stage with recompute, gelu and any number of micro-batches") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  constexpr int64_t kLayers = 8;
  Sample sample(3);
  for (const int stages : stages_on(*world))
    for (const int64_t micro_batches : {1, 2, 8}) {
      Job job = pipeline_job(DType::f32, world->size() / stages, stages, micro_batches);
      job.model.set("n_layer", kLayers - 2);
      job.model.set("activation", micro_batches % 2 == 0 ? "gelu" : "relu");
      job.model.set("dropout", micro_batches == 2 ? 0 : 0.1);
      const RunResult expected = without_pipeline(job, data, *world);
      for (const PipelineConfig& pipeline : pipelines(stages, kLayers, micro_batches)) {
        job.pipeline = pipeline;
        for (const RecomputeConfig& recompute : {RecomputeConfig{},
                                                 {RecomputeMode::selective, 0},
                                                 {RecomputeMode::interval, 1},
                                                 {RecomputeMode::interval, 2}}) {
          if (!sample.takes()) continue;
          job.recompute = recompute;
          job.pipeline.partition = recompute.interval == 1 ? "memory" : "uniform";
          compare(expected, job, data, *world);
        }
      }
    }
}

TEST_CASE("several parts of the benchmark model on a stage") {
  const auto world = make_communicator();
  for (const int stages : stages_on(*world)) {
    Job job = pipeline_job(DType::f32, world->size() / stages, stages, 4);
    job.model = BenchmarkModel{.n_layer = 9, .in_size = 9, .hidden_size = 21, .out_size = 7};
    job.weight_decay_exclude = {};
    const GeneratedDataset data(job);
    const RunResult expected = without_pipeline(job, data, *world);
    for (const PipelineConfig& pipeline : pipelines(stages, 9, 4)) {
      job.pipeline = pipeline;
      compare(expected, job, data, *world);
    }
  }
}

TEST_CASE("a head that shares the embedding's weights, with several parts on a stage") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  for (const int stages : stages_on(*world))
    for (const ReduceMode reduce : {ReduceMode::boundary, ReduceMode::micro_batch})
      for (const int zero_stage : {0, 2, 3}) {
        Job job = pipeline_job(DType::f32, world->size() / stages, stages, 4);
        if (job.data_ranks() == 1 && zero_stage > 0) continue;
        job.model.set("n_layer", 6);
        job.model.set("activation", "gelu");
        job.model.set("qkv_bias", true);
        job.model.set("tied_head", true);
        job.reduce = reduce;
        job.zero_stage = zero_stage;
        job.gather = {.param_persistence = 0, .max_reuse_distance = 0};
        const RunResult whole = run_steps(job, data, *world, kSteps);
        for (const PipelineConfig& pipeline : pipelines(stages, 8, 4)) {
          job.pipeline = pipeline;
          if (pipeline.schedule != PipelineSchedule::zb_v) {
            compare(whole, job, data, *world);
            continue;
          }
          // One stage has both uses, and adds their gradients in another order.
          const RunResult result = run_steps(job, data, *world, kSteps);
          for (size_t i = 0; i < whole.loss.size(); ++i) {
            CHECK(result.loss[i] == Approx(whole.loss[i]).epsilon(1e-6));
            CHECK(result.norm[i] == Approx(whole.norm[i]).epsilon(1e-6));
          }
        }
      }
}
