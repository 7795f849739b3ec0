// Parameters that are divided among the ranks of a replica (HYBRID_SHARD, MiCS, hpZ): the bits of plain stage 3.
// mpirun starts this program on 2 to 8 ranks; on 2 and 3 ranks a shard is one rank or all of them.
#include <catch2/catch.hpp>
#include <cstdlib>

#include "launcher/implementations.h"
#include "runtime/comm/world.h"
#include "tests/engine/device/submitted_library.h"
#include "tests/engine/stages/optimizers.h"
#include "tests/engine/stages/pipeline_jobs.h"
#include "tests/support/sample.h"
#include "tests/support/skip.h"
#include "tests/support/temp_dir.h"

using namespace dstrain;

namespace {

// A model of odd sizes; fp16 begins with skipped steps.
Job shards_job(int ranks, DType dtype, int64_t accumulation, ReduceMode reduce) {
  Job job = pipeline_job(dtype, ranks, 1, accumulation);
  job.zero_stage = 3;
  job.reduce = reduce;
  job.gradient_clipping = 0.5;
  job.gather = {.param_persistence = 0, .max_reuse_distance = 0};
  return job;
}

// The sizes of shards that divide the ranks, but for all of them.
std::vector<int> shard_sizes(int ranks) {
  std::vector<int> sizes;
  for (int size = 1; size < ranks; ++size)
    if (ranks % size == 0) sizes.push_back(size);
  return sizes;
}

double elements_of(const Plan& plan, bool blocks_alone) {
  double sum = 0;
  for (const Unit& unit : plan.program.units)
    if (!blocks_alone || unit.name.starts_with("blocks")) sum += static_cast<double>(unit.elements);
  return sum;
}

void expect_same(const RunResult& expected, const Job& job, const Dataset& data,
                 Communicator& world, int threads = 1) {
  INFO(describe(job));
  const RunResult result = run_steps(job, data, world, kSteps, threads);
  CHECK(difference(expected, result, world) == "");
  CHECK(result.sent_per_step == result.planned_to_send);
}

}  // namespace

TEST_CASE("shards of any size have the bits of stage 3, in every dtype and way of adding") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  Sample sample(4);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const int64_t accumulation : {1, 3})
      for (const ReduceMode reduce : {ReduceMode::boundary, ReduceMode::micro_batch}) {
        Job job = shards_job(world->size(), dtype, accumulation, reduce);
        const RunResult expected = run_steps(job, data, *world, kSteps);
        if (dtype == DType::f16) {
          REQUIRE(expected.skipped.front() == 1);
          REQUIRE(expected.skipped.back() == 0);
        }
        for (const int size : shard_sizes(world->size()))
          for (const bool overlap : {false, true})
            for (const int64_t reuse : {int64_t{0}, int64_t{5000}, int64_t{1'000'000'000}}) {
              if (!sample.takes()) continue;
              job.shards.ranks = size;
              job.overlap_comm = overlap;
              job.gather.max_reuse_distance = reuse;
              expect_same(expected, job, data, *world);
            }
      }
}

TEST_CASE("shards change no bit with another wire, gradients in 16 bits, recompute or a thread") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  for (const int size : shard_sizes(world->size())) {
    Job job = shards_job(world->size(), DType::bf16, 2, ReduceMode::micro_batch);
    job.wire_dtype = DType::f32;
    job.grad_dtype = DType::bf16;
    RunResult expected = run_steps(job, data, *world, kSteps);
    job.shards.ranks = size;
    job.recompute = {RecomputeMode::interval, 1};
    expect_same(expected, job, data, *world);

    job = shards_job(world->size(), DType::f32, 2, ReduceMode::micro_batch);
    job.wire_dtype = DType::bf16;
    expected = run_steps(job, data, *world, kSteps, 2);
    job.shards.ranks = size;
    job.overlap_comm = true;
    expect_same(expected, job, data, *world, 2);
  }
}

TEST_CASE("every optimizer has the same bits with shards") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  for (const OptimizerConfig& optimizer : other_optimizers(0.1))
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Job job = shards_job(world->size(), dtype, 2, ReduceMode::micro_batch);
      job.optimizer = optimizer;
      const RunResult expected = run_steps(job, data, *world, kSteps);
      for (const int size : shard_sizes(world->size())) {
        job.shards.ranks = size;
        expect_same(expected, job, data, *world);
      }
    }
}

TEST_CASE("shards in the host's memory or on disk change no bit, wherever the optimizer is") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  const TempDir drive;
  Sample sample(16);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const int64_t accumulation : {1, 3})
      for (const ReduceMode reduce : {ReduceMode::boundary, ReduceMode::micro_batch}) {
        Job job = shards_job(world->size(), dtype, accumulation, reduce);
        for (const int size : shard_sizes(world->size()))
          for (const OffloadTo to : {OffloadTo::cpu, OffloadTo::nvme})
            for (const int64_t reuse : {int64_t{0}, int64_t{1'000'000'000}}) {
              if (!sample.takes()) continue;
              job.overlap_comm = reuse == 0;
              job.gather.max_reuse_distance = reuse;
              job.shards = {};
              job.offload = {};
              const RunResult expected = run_steps(job, data, *world, kSteps);
              job.shards.ranks = size;
              job.offload.nvme_paths = {drive.path()};
              job.offload.parameters = to;
              if (to == OffloadTo::nvme && dtype == DType::bf16) job.offload.max_in_cpu = 1000;
              for (const OffloadTo state : {OffloadTo::none, OffloadTo::cpu, OffloadTo::nvme})
                for (const UpdateOn where : {UpdateOn::host, UpdateOn::device}) {
                  if (where == UpdateOn::device && state != OffloadTo::cpu) continue;
                  job.offload.optimizer = state;
                  job.offload.optimizer_on = where;
                  expect_same(expected, job, data, *world);
                }
              const RunResult apart = run_steps(job, data, *world, kSteps, 1, submitted_backend());
              CHECK(difference(expected, apart, *world) == "");
              CHECK(apart.planned_host_bytes > 0);
              CHECK((apart.planned_disk_bytes > 0) == job.offload.uses_disk());
            }
      }
}

TEST_CASE("every optimizer has the same bits with shards in the host's memory") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  Sample sample(4);
  for (const OptimizerConfig& optimizer : other_optimizers(0.1))
    for (const DType dtype : {DType::f32, DType::bf16}) {
      if (!sample.takes()) continue;
      Job job = shards_job(world->size(), dtype, 2, ReduceMode::micro_batch);
      job.optimizer = optimizer;
      const RunResult expected = run_steps(job, data, *world, kSteps);
      for (const int size : shard_sizes(world->size()))
        for (const UpdateOn where : {UpdateOn::host, UpdateOn::device}) {
          job.shards.ranks = size;
          job.offload = {.optimizer = OffloadTo::cpu,
                         .optimizer_on = where,
                         .ratio = 0.5,
                         .parameters = OffloadTo::cpu};
          expect_same(expected, job, data, *world);
        }
    }
}

TEST_CASE("the bytes of shards are the formula's, and the plan's") {
  const RandomDataset data(13);
  const auto world = make_communicator();
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int64_t accumulation : {1, 3})
      for (const ReduceMode reduce : {ReduceMode::boundary, ReduceMode::micro_batch})
        for (const int size : shard_sizes(world->size())) {
          Job job = shards_job(world->size(), dtype, accumulation, reduce);
          job.model.set("n_embd", 64);
          job.model.set("vocab_size", 128);  // no block is too small to count
          job.shards.ranks = size;
          const RunResult result = run_steps(job, data, *world, 2);
          INFO(describe(job));
          CHECK(result.sent_per_step == result.planned_to_send);
          const PlanInputs inputs{make_planning_library(implementations(), DeviceKind::cpu), 1};
          const Plan plan = make_rank_plan(job, place_of(job, world->rank()), inputs).train;
          const auto a = static_cast<double>(accumulation);
          const double n = job.ranks, s = size, all = elements_of(plan, false);
          const double gradients = (reduce == ReduceMode::micro_batch ? a : 1) * all * (n - 1) / n;
          const double gathers = a * (all + elements_of(plan, true)) * (s - 1) / s;
          const double updated = all * (n / s - 1) / n;
          CHECK(static_cast<double>(result.sent_per_step) ==
                Approx((gradients + gathers + updated) * static_cast<double>(size_of(dtype)))
                    .epsilon(0.001));
        }
}

TEST_CASE("shards within the stages of a pipeline change no bit") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  SKIP_UNLESS(world->size() == 8, "two stages of four ranks need 8 ranks");
  const int stages = world->size() / 4;
  for (const auto& [dtype, schedule] : {std::pair{DType::f32, PipelineSchedule::one_f_one_b},
                                        {DType::bf16, PipelineSchedule::gpipe},
                                        {DType::f16, PipelineSchedule::zb_h1}}) {
    Job job = pipeline_job(dtype, 4, stages, 4);
    job.zero_stage = 3;
    job.gather = {.param_persistence = 0, .max_reuse_distance = 0};
    job.reduce = ReduceMode::micro_batch;
    job.pipeline.schedule = schedule;
    const RunResult expected = without_pipeline(job, data, *world);
    for (const int size : {1, 2}) {
      job.shards.ranks = size;
      for (const bool overlap : {false, true}) {
        job.overlap_comm = overlap;
        compare(expected, job, data, *world);
      }
    }
  }
}
