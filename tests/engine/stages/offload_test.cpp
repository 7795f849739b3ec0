// Offload must not change the numbers of a run. mpirun starts this program on 1 to 4 ranks.
#include <catch2/catch.hpp>

#include "runtime/comm/world.h"
#include "tests/engine/device/submitted_library.h"
#include "tests/engine/stages/optimizers.h"
#include "tests/engine/stages/pipeline_jobs.h"
#include "tests/support/sample.h"
#include "tests/support/skip.h"
#include "tests/support/temp_dir.h"

using namespace dstrain;

namespace {

Job offload_job(int ranks, DType dtype, int stage, int64_t accumulation) {
  Job job = pipeline_job(dtype, ranks, 1, accumulation);
  job.zero_stage = stage;
  job.reduce = stage < 2 ? ReduceMode::boundary : ReduceMode::micro_batch;
  job.overlap_comm = (stage + static_cast<int>(dtype)) % 2 == 0;
  job.gather = {.param_persistence = 0, .max_reuse_distance = 0};
  return job;
}

Job offloaded(Job job, UpdateOn where = UpdateOn::automatic) {
  job.offload.optimizer = OffloadTo::cpu;
  job.offload.optimizer_on = where;
  return job;
}

Job on_disk(Job job, const std::vector<std::string>& paths) {
  job.offload.optimizer = OffloadTo::nvme;
  job.offload.nvme_paths = paths;
  // Nothing, some layers or all of them: different from job to job.
  constexpr int64_t kReadAhead[] = {0, 20'000, int64_t{1} << 40};
  job.offload.read_ahead = kReadAhead[(job.zero_stage + job.batch.accumulation) % 3];
  return job;
}

Job with_parameters(Job job, OffloadTo to, const std::vector<std::string>& paths) {
  job.offload.parameters = to;
  if (to == OffloadTo::nvme) job.offload.nvme_paths = paths;
  return job;
}

// Checks that the offloaded job gives the expected results.
void compare_offloaded(const RunResult& expected, const Job& job, const Dataset& data,
                       Communicator& world) {
  INFO(describe(job) << ", updated on "
                     << (job.offload.optimizer_on == UpdateOn::device ? "the device" : "the host"));
  const RunResult result = run_steps(job, data, world, kSteps);
  CHECK(difference(expected, result, world) == "");
  // By memory a pipeline is divided otherwise where tensors are off the device.
  CHECK(result.sent_per_step ==
        (job.pipeline.partition == "memory" ? result.planned_to_send : expected.sent_per_step));
  CHECK(result.planned_host_bytes > 0);
  CHECK((result.planned_disk_bytes > 0) == job.offload.uses_disk());
}

}  // namespace

TEST_CASE("state in the host's memory changes no bit, whoever updates") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  Sample sample(6);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const int64_t accumulation : {1, 4})
      for (const int stage : {0, 1, 2, 3})
        for (const double clipping : {0.0, 0.05}) {
          if (!sample.takes()) continue;
          Job job = offload_job(world->size(), dtype, stage, accumulation);
          job.gradient_clipping = clipping;
          const RunResult expected = run_steps(job, data, *world, kSteps);
          if (dtype == DType::f16) {
            REQUIRE(expected.skipped.front() == 1);
            REQUIRE(expected.skipped.back() == 0);
          }
          CHECK(expected.planned_host_bytes == 0);
          for (const UpdateOn where : {UpdateOn::host, UpdateOn::device})
            compare_offloaded(expected, offloaded(job, where), data, *world);
        }
}

TEST_CASE("a share of the state on the device changes no bit, whoever updates the rest") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  const TempDir drive;
  Sample sample(10);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const int64_t accumulation : {1, 4})
      for (const int stage : {0, 1, 2, 3})
        for (const double ratio : {0.0, 0.4, 0.8}) {
          if (!sample.takes()) continue;
          Job job = offload_job(world->size(), dtype, stage, accumulation);
          job.gradient_clipping = 0.05;
          const RunResult expected = run_steps(job, data, *world, kSteps);
          std::vector<Job> jobs{offloaded(job, UpdateOn::host), offloaded(job, UpdateOn::device),
                                on_disk(job, {drive.path()})};
          if (stage == 3) {
            jobs.push_back(with_parameters(jobs[0], OffloadTo::cpu, {}));
            jobs.push_back(with_parameters(jobs[2], OffloadTo::nvme, {drive.path()}));
          }
          for (Job& moved : jobs) {
            const RunResult all = run_steps(moved, data, *world, 1);
            moved.offload.ratio = ratio;
            INFO(describe(moved) << ", ratio " << ratio);
            const RunResult result = run_steps(moved, data, *world, kSteps);
            CHECK(difference(expected, result, *world) == "");
            CHECK(result.sent_per_step == expected.sent_per_step);
            CHECK(result.planned_bytes > all.planned_bytes);
            const auto away = [](const RunResult& r) {
              return r.planned_host_bytes + r.planned_disk_bytes;
            };
            CHECK(away(result) < away(all));
            CHECK((result.planned_disk_bytes > 0) == moved.offload.uses_disk());
          }
          const RunResult apart =
              run_steps(jobs.back(), data, *world, kSteps, 1, submitted_backend());
          CHECK(difference(expected, apart, *world) == "");
        }
}

TEST_CASE("every optimizer can have a share of its state on the device, in pipelines too") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  std::vector<Job> jobs;
  for (const OptimizerConfig& optimizer : other_optimizers(0.1)) {
    const DType dtype = jobs.size() % 2 == 0 ? DType::f32 : DType::bf16;
    jobs.push_back(offload_job(world->size(), dtype, jobs.size() % 3 == 0 ? 1 : 3, 2));
    jobs.back().optimizer = optimizer;
  }
  if (world->size() % 2 == 0) {
    jobs.push_back(pipeline_job(DType::f32, world->size() / 2, 2, 3));
    jobs.back().zero_stage = 1;
  }
  for (Job& job : jobs) {
    const RunResult expected = run_steps(job, data, *world, kSteps);
    job.offload.ratio = 0.5;
    for (const UpdateOn where : {UpdateOn::host, UpdateOn::device})
      compare_offloaded(expected, offloaded(job, where), data, *world);
  }
}

TEST_CASE("state on disk changes no bit") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  const TempDir one, two;
  Sample sample(6);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const int64_t accumulation : {1, 4})
      for (const int stage : {0, 1, 2, 3})
        for (const double clipping : {0.0, 0.05}) {
          if (!sample.takes()) continue;
          Job job = offload_job(world->size(), dtype, stage, accumulation);
          job.gradient_clipping = clipping;
          const RunResult expected = run_steps(job, data, *world, kSteps);
          job.aio.block_size = stage % 2 == 0 ? 4096 : 1 << 20;
          job.aio.intra_op_parallelism = stage + 1;
          const std::vector<std::string> paths =
              stage < 2 ? std::vector{one.path()} : std::vector{one.path(), two.path()};
          compare_offloaded(expected, on_disk(job, paths), data, *world);
        }
}

TEST_CASE("parameters on the host or on disk change no bit, wherever the optimizer is") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  const TempDir drive;
  Sample sample(12);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const int64_t accumulation : {1, 4})
      for (const int64_t reuse : {0, 1000000})
        for (const RecomputeMode recompute : {RecomputeMode::none, RecomputeMode::interval})
          for (const OffloadTo to : {OffloadTo::cpu, OffloadTo::nvme}) {
            if (!sample.takes()) continue;
            Job job = offload_job(world->size(), dtype, 3, accumulation);
            job.gather.max_reuse_distance = reuse;
            job.recompute = {recompute, recompute == RecomputeMode::interval ? 2 : 0};
            const RunResult expected = run_steps(job, data, *world, kSteps);
            job = with_parameters(job, to, {drive.path()});
            compare_offloaded(expected, offloaded(job, UpdateOn::host), data, *world);
            compare_offloaded(expected, offloaded(job, UpdateOn::device), data, *world);
            compare_offloaded(expected, on_disk(job, {drive.path()}), data, *world);
            compare_offloaded(expected, job, data, *world);
            if (reuse == 0)
              CHECK(run_steps(job, data, *world, 1).planned_bytes < expected.planned_bytes);
          }
}

TEST_CASE("parameters off the device with every optimizer, in pipelines, on other devices") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  const TempDir drive;
  std::vector<Job> jobs;
  Sample sample(4);
  for (const DType dtype : {DType::f32, DType::f16}) {
    for (const OptimizerConfig& optimizer : other_optimizers(0.1)) {
      jobs.push_back(offload_job(world->size(), dtype, 3, 2));
      jobs.back().optimizer = optimizer;
    }
    if (world->size() % 2 != 0) continue;
    for (const PipelineSchedule schedule :
         {PipelineSchedule::one_f_one_b, PipelineSchedule::zb_v}) {
      jobs.push_back(pipeline_job(dtype, world->size() / 2, 2, 3));
      jobs.back().zero_stage = 3;
      jobs.back().reduce = ReduceMode::micro_batch;
      jobs.back().pipeline.schedule = schedule;
      if (dtype == DType::f32) jobs.back().pipeline.partition = "memory";  // cuts a block
      if (schedule == PipelineSchedule::zb_v) jobs.back().pipeline.virtual_stages = 2;
    }
  }
  OffloadTo to = OffloadTo::cpu;
  for (Job& job : jobs) {
    to = to == OffloadTo::cpu ? OffloadTo::nvme : OffloadTo::cpu;
    if (!sample.takes()) continue;
    const RunResult expected = run_steps(job, data, *world, kSteps);
    job = with_parameters(job, to, {drive.path()});
    job.offload.max_in_cpu = 2000;  // some of the units
    compare_offloaded(expected, job, data, *world);
    compare_offloaded(expected, offloaded(job), data, *world);
    const RunResult result =
        run_steps(offloaded(job), data, *world, kSteps, 1, submitted_backend());
    CHECK(difference(expected, result, *world) == "");
  }
}

TEST_CASE("parameters off the device, updated there by Muon with messages beside the update") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  const TempDir drive;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Job job = offload_job(world->size(), dtype, 3, 1);
    job.overlap_comm = true;
    job.optimizer = other_optimizers(0.1).back();
    REQUIRE(job.optimizer.kind == OptimizerKind::muon);
    const RunResult expected = run_steps(job, data, *world, kSteps);
    for (const OffloadTo to : {OffloadTo::cpu, OffloadTo::nvme}) {
      const Job moved = with_parameters(job, to, {drive.path()});
      compare_offloaded(expected, moved, data, *world);
      compare_offloaded(expected, offloaded(moved, UpdateOn::device), data, *world);
    }
  }
}

TEST_CASE("activations on the host or on disk change no bit") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  const TempDir drive;
  Sample sample(8);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const int64_t accumulation : {1, 4})
      for (const int stage : {0, 3})
        for (const RecomputeMode recompute :
             {RecomputeMode::none, RecomputeMode::selective, RecomputeMode::interval}) {
          if (!sample.takes()) continue;
          Job job = offload_job(world->size(), dtype, stage, accumulation);
          job.model.set("n_layer", 5);
          job.recompute = {recompute, recompute == RecomputeMode::interval ? 1 : 0};
          const RunResult expected = run_steps(job, data, *world, kSteps);
          for (const OffloadTo to : {OffloadTo::cpu, OffloadTo::nvme}) {
            Job moved = job;
            moved.offload.activations = to;
            moved.offload.nvme_paths = {drive.path()};
            compare_offloaded(expected, moved, data, *world);
            if (stage < 3) continue;
            moved = on_disk(with_parameters(moved, to, {drive.path()}), {drive.path()});
            compare_offloaded(expected, moved, data, *world);
            const RunResult result = run_steps(moved, data, *world, kSteps, 1, submitted_backend());
            CHECK(difference(expected, result, *world) == "");
          }
        }
}

TEST_CASE("the stages of a pipeline offload their activations") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  SKIP_UNLESS(world->size() % 2 == 0, "two stages need an even number of ranks");
  const TempDir drive;
  Sample sample(2);
  for (const DType dtype : {DType::f32, DType::f16})
    for (const PipelineSchedule schedule : {PipelineSchedule::one_f_one_b, PipelineSchedule::zb_v})
      for (const int64_t interval : {0, 1}) {
        if (!sample.takes()) continue;
        Job job = pipeline_job(dtype, world->size() / 2, 2, 3);
        job.zero_stage = 1;
        job.pipeline.schedule = schedule;
        if (dtype == DType::f32) job.pipeline.partition = "memory";  // cuts a block
        if (schedule == PipelineSchedule::zb_v) job.pipeline.virtual_stages = 2;
        job.recompute = {interval > 0 ? RecomputeMode::interval : RecomputeMode::none, interval};
        const RunResult expected = run_steps(job, data, *world, kSteps);
        for (const OffloadTo to : {OffloadTo::cpu, OffloadTo::nvme}) {
          job.offload.activations = to;
          job.offload.nvme_paths = {drive.path()};
          compare_offloaded(expected, job, data, *world);
        }
      }
}

TEST_CASE("every optimizer can be offloaded") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  const TempDir drive;
  Sample sample(2);
  for (const OptimizerConfig& optimizer : other_optimizers(0.1))
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const int stage : {0, 1, 3}) {
        if (!sample.takes()) continue;
        Job job = offload_job(world->size(), dtype, stage, 2);
        job.optimizer = optimizer;
        const RunResult expected = run_steps(job, data, *world, kSteps);
        for (const UpdateOn where : {UpdateOn::host, UpdateOn::device})
          compare_offloaded(expected, offloaded(job, where), data, *world);
        compare_offloaded(expected, on_disk(job, {drive.path()}), data, *world);
      }
}

TEST_CASE("gradients that are held in 16 bits, and a rank that has threads") {
  const RandomDataset data(13);
  const auto world = make_communicator();
  for (const int stage : {1, 3}) {
    Job job = offload_job(world->size(), DType::bf16, stage, 3);
    job.grad_dtype = DType::bf16;
    const RunResult expected = run_steps(job, data, *world, 4);
    CHECK(difference(expected, run_steps(offloaded(job), data, *world, 4, 2), *world) == "");
  }
}

TEST_CASE("the stages of a pipeline offload their optimizers") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  SKIP_UNLESS(world->size() % 2 == 0, "two stages need an even number of ranks");
  const TempDir drive;
  for (const DType dtype : {DType::f32, DType::f16})
    for (const PipelineSchedule schedule :
         {PipelineSchedule::one_f_one_b, PipelineSchedule::zb_v}) {
      Job job = pipeline_job(dtype, world->size() / 2, 2, 3);
      job.zero_stage = 1;
      job.pipeline.schedule = schedule;
      if (dtype == DType::f32) job.pipeline.partition = "memory";  // cuts a block
      if (schedule == PipelineSchedule::zb_v) job.pipeline.virtual_stages = 2;
      const RunResult expected = run_steps(job, data, *world, kSteps);
      compare_offloaded(expected, offloaded(job), data, *world);
      compare_offloaded(expected, on_disk(job, {drive.path()}), data, *world);
    }
}

TEST_CASE("a device of its own changes no bit, with copies beside computation") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  const TempDir drive;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const int stage : {0, 2, 3}) {
      const Job job = offload_job(world->size(), dtype, stage, 2);
      const RunResult expected = run_steps(job, data, *world, kSteps);
      for (const UpdateOn where : {UpdateOn::host, UpdateOn::device}) {
        INFO(describe(job));
        const Job moved = offloaded(job, where);
        const RunResult result = run_steps(moved, data, *world, kSteps, 1, submitted_backend());
        CHECK(difference(expected, result, *world) == "");
      }
      const RunResult result =
          run_steps(on_disk(job, {drive.path()}), data, *world, kSteps, 1, submitted_backend());
      CHECK(difference(expected, result, *world) == "");
    }
}

TEST_CASE("the emulated device gives its own bits when the host updates") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  SKIP_UNLESS(world->size() <= 2, "the emulated device is slow: on 1 and 2 ranks only");
  for (const OptimizerKind kind : {OptimizerKind::adam, OptimizerKind::lamb, OptimizerKind::sgd,
                                   OptimizerKind::lion, OptimizerKind::adagrad})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Job job = offload_job(world->size(), dtype, world->size() > 1 ? 3 : 1, 1);
      job.device = DeviceChoice::emulated;
      job.optimizer.kind = kind;
      const RunResult expected = run_steps(job, data, *world, 2);
      INFO(describe(job));
      CHECK(difference(expected, run_steps(offloaded(job), data, *world, 2), *world) == "");
    }
}
