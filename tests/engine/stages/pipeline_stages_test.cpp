// A pipeline is the same run as one without: bit for bit, at the same number of data-parallel ranks. mpirun starts
// this program on 2 to 4 ranks.
#include <algorithm>
#include <cmath>

#include "runtime/comm/world.h"
#include "tests/engine/stages/optimizers.h"
#include "tests/engine/stages/pipeline_jobs.h"
#include "tests/support/models.h"

using namespace dstrain;

namespace {

// Returns the distance of two vectors over the length of the first.
template <class T>
double distance(const std::vector<T>& a, const std::vector<T>& b) {
  double difference = 0, length = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    difference += std::pow(double{a[i]} - double{b[i]}, 2);
    length += std::pow(double{a[i]}, 2);
  }
  return length == 0 ? 0 : std::sqrt(difference / length);
}

}  // namespace

TEST_CASE("a pipeline changes no bit, at any ZeRO stage") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  for (const int stages : stages_on(*world))
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const ReduceMode reduce : {ReduceMode::boundary, ReduceMode::micro_batch}) {
        Job job = pipeline_job(dtype, world->size() / stages, stages, 5);
        job.reduce = reduce;
        const RunResult expected = without_pipeline(job, data, *world);
        for (const PipelineSchedule schedule :
             {PipelineSchedule::gpipe, PipelineSchedule::one_f_one_b})
          for (const int zero_stage : {0, 1, 2, 3}) {
            if (job.data_ranks() == 1 && zero_stage > 0) continue;
            job.pipeline.schedule = schedule;
            job.zero_stage = zero_stage;
            job.overlap_comm = (zero_stage + static_cast<int>(dtype)) % 2 == 0;
            job.gather = {.param_persistence = 0,
                          .max_reuse_distance = zero_stage == 3 && job.overlap_comm ? 100000 : 0};
            compare(expected, job, data, *world);
          }
      }
}

TEST_CASE("a pipeline that cuts layers between their sublayers changes no bit, at any ZeRO stage") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  for (const int stages : stages_on(*world))
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const ReduceMode reduce : {ReduceMode::boundary, ReduceMode::micro_batch}) {
        Job job = pipeline_job(dtype, world->size() / stages, stages, 5);
        job.model.set("n_layer", stages == 3 ? 4 : 3);  // no division between layers is as even
        job.gradient_clipping = 0.05;
        job.reduce = reduce;
        const RunResult expected = without_pipeline(job, data, *world);
        int cuts = 0;
        for (const int zero_stage : {0, 1, 2, 3}) {
          if (job.data_ranks() == 1 && zero_stage > 0) continue;
          job.pipeline.partition = zero_stage % 2 == 0 ? "memory" : "time";
          job.zero_stage = zero_stage;
          job.overlap_comm = zero_stage < 2;
          job.gather = {.param_persistence = 0, .max_reuse_distance = 0};
          cuts += cuts_a_layer(job);
          compare(expected, job, data, *world);
        }
        CHECK(cuts > 0);
      }
}

TEST_CASE("a pipeline with recompute, any number of micro-batches and any partition") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  for (const int stages : stages_on(*world))
    for (const int64_t micro_batches : {1, 2, 7}) {
      Job job = pipeline_job(DType::f32, world->size() / stages, stages, micro_batches);
      const RunResult expected = without_pipeline(job, data, *world);
      for (const RecomputeMode mode :
           {RecomputeMode::none, RecomputeMode::selective, RecomputeMode::interval}) {
        job.recompute = {mode, mode == RecomputeMode::interval ? 2 : 0};
        for (const char* method : {"uniform", "parameters", "type:blocks", "time", "memory"}) {
          job.pipeline.partition = method;
          compare(expected, job, data, *world);
        }
      }
      if (stages != 2) continue;
      job.pipeline.partition = "list";
      for (int64_t first = 1; first < 5; ++first) {
        job.pipeline.first_layers = {0, first};
        compare(expected, job, data, *world);
      }
    }
}

TEST_CASE("a pipeline changes no bit with any optimizer") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  for (const OptimizerConfig& optimizer : other_optimizers(0.1))
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const int stages : stages_on(*world)) {
        Job job = pipeline_job(dtype, world->size() / stages, stages, 3);
        job.optimizer = optimizer;
        const RunResult expected = without_pipeline(job, data, *world);
        for (const int zero_stage : {0, 1, 3}) {
          if (job.data_ranks() == 1 && zero_stage > 0) continue;
          job.zero_stage = zero_stage;
          job.pipeline.partition = zero_stage == 1 ? "parameters" : "time";  // which cuts blocks
          compare(expected, job, data, *world);
        }
      }
}

TEST_CASE("a pipeline of the benchmark model") {
  const auto world = make_communicator();
  for (const int stages : stages_on(*world)) {
    Job job = pipeline_job(DType::f32, world->size() / stages, stages, 4);
    job.model = BenchmarkModel{.n_layer = 5, .in_size = 9, .hidden_size = 21, .out_size = 7};
    job.weight_decay_exclude = {};
    const GeneratedDataset data(job);
    compare(without_pipeline(job, data, *world), job, data, *world);
  }
}

TEST_CASE("a head that shares the embedding's weights, on another stage") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  for (const int stages : stages_on(*world))
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const ReduceMode reduce : {ReduceMode::boundary, ReduceMode::micro_batch}) {
        Job job = pipeline_job(dtype, world->size() / stages, stages, 5);
        job.model.set("activation", "gelu");
        job.model.set("qkv_bias", true);
        job.model.set("tied_head", true);
        job.reduce = reduce;
        const RunResult alone = without_pipeline(job, data, *world);
        const RunResult first = run_steps(job, data, *world, kSteps);
        INFO(describe(job) << ", " << stages << " stages");
        // The embedding's gradient and the head's are added once per step instead of once per micro-batch.
        const bool exact = dtype == DType::f32;
        CHECK(distance(alone.loss, first.loss) <= (exact ? 1e-6 : 1e-4));
        CHECK(distance(alone.weights, first.weights) <= (exact ? 1e-6 : 5e-3));
        if (exact) CHECK(distance(alone.norm, first.norm) <= 1e-6);
        CHECK(alone.skipped == first.skipped);
        // All pipelines of as many data-parallel ranks have the same bits.
        for (const int zero_stage : {0, 1, 2, 3}) {
          if (job.data_ranks() == 1 && zero_stage > 0) continue;
          job.zero_stage = zero_stage;
          job.pipeline.schedule =
              zero_stage % 2 == 0 ? PipelineSchedule::gpipe : PipelineSchedule::one_f_one_b;
          job.pipeline.partition = zero_stage < 2 ? "uniform" : "memory";
          job.overlap_comm = zero_stage > 1;
          job.gather = {.param_persistence = 0,
                        .max_reuse_distance = zero_stage == 3 && stages == 2 ? 100000 : 0};
          job.recompute = {zero_stage == 1 ? RecomputeMode::selective : RecomputeMode::none, 0};
          compare(first, job, data, *world);
        }
      }
}
