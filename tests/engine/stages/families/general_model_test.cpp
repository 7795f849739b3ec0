// A model of general ops has the same bits at every stage. mpirun starts this program.
#include "tests/support/general_model.h"

#include <catch2/catch.hpp>

#include "launcher/implementations.h"
#include "runtime/comm/self_comm.h"
#include "runtime/comm/world.h"
#include "tests/engine/stages/run_steps.h"
#include "tests/engine/test_rank.h"
#include "tests/support/skip.h"

namespace dstrain {
namespace {

constexpr int kGeneralSteps = 6;

Job general_job(DType dtype, int ranks, int stages = 1) {
  Job job;
  job.model = general_model();
  job.ranks = ranks;
  job.pipeline.stages = stages;
  job.batch = {4 * ranks / stages, 2, 2};
  job.dtype = job.wire_dtype = dtype;
  job.optimizer.weight_decay = 0.1;
  if (dtype == DType::f16) {  // too large a scale: the first steps are skipped
    job.skip_on_overflow = true;
    job.loss_scale = {.dynamic = true, .initial = 0x1p18, .hysteresis = 1};
  }
  return job;
}

}  // namespace

TEST_CASE("general ops have the same bits at every stage and number of threads") {
  const RandomDataset data(7);
  const auto comm = make_communicator();
  Communicator& world = *comm;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    Job job = general_job(dtype, world.size());
    const RunResult expected = run_steps(job, data, world, kGeneralSteps);
    CHECK(expected.skipped.front() == (dtype == DType::f16 ? 1 : 0));
    CHECK(expected.skipped.back() == 0);
    CHECK(expected.loss.back() != expected.loss.front());
    for (const int stage : {0, 1, 2, 3})
      for (const RecomputeMode recompute :
           {RecomputeMode::none, RecomputeMode::interval, RecomputeMode::selective}) {
        job.zero_stage = stage;
        job.recompute = {recompute, 1};
        job.overlap_comm = stage % 2 == 1;
        job.gather = {.param_persistence = 0, .max_reuse_distance = 0};
        INFO(describe(job));
        const int threads = recompute == RecomputeMode::interval ? 3 : 1;
        CHECK(difference(expected, run_steps(job, data, world, kGeneralSteps, threads), world) ==
              "");
      }
    job.offload.optimizer = job.offload.parameters = OffloadTo::cpu;
    job.offload.optimizer_on = UpdateOn::host;
    CHECK(difference(expected, run_steps(job, data, world, kGeneralSteps), world) == "");
  }
}

TEST_CASE(
    "general ops on several ranks agree with one rank, and the stages of a pipeline have its "
    "bits") {
  const auto comm = make_communicator();
  SKIP_UNLESS(comm->size() == 2, "two stages need two ranks");
  const RandomDataset data(7);
  SelfComm self;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const RunResult alone = run_steps(general_job(dtype, 1), data, self, kGeneralSteps);
    const RunResult staged = run_steps(general_job(dtype, 2, 2), data, *comm, kGeneralSteps);
    CHECK(staged.loss == alone.loss);
    CHECK(staged.norm == alone.norm);
    if (comm->rank() == 0) CHECK(staged.weights == alone.weights);
  }
  Job one = general_job(DType::f32, 1);
  one.batch = {8, 2, 4};
  const RunResult expected = run_steps(one, data, self, kGeneralSteps);
  const RunResult two = run_steps(general_job(DType::f32, 2), data, *comm, kGeneralSteps);
  for (size_t i = 0; i < expected.loss.size(); ++i)
    CHECK(two.loss[i] == Approx(expected.loss[i]).epsilon(1e-6));
}

TEST_CASE("general ops on an emulated device are near those on the CPU") {
  const auto comm = make_communicator();
  SKIP_UNLESS(comm->size() == 1, "the emulated device is slow: on 1 rank only");
  const RandomDataset data(7);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Job job = general_job(dtype, 1);
    const RunResult cpu = run_steps(job, data, *comm, 2);
    job.device = DeviceChoice::emulated;
    const RunResult device =
        run_steps(job, data, *comm, 2, 1, make_backend(implementations(), DeviceChoice::emulated));
    const double tolerance = dtype == DType::f32 ? 1e-5 : 2e-2;
    for (size_t i = 0; i < cpu.loss.size(); ++i) {
      CHECK(device.loss[i] == Approx(cpu.loss[i]).epsilon(tolerance));
      CHECK(device.norm[i] == Approx(cpu.norm[i]).epsilon(tolerance));
    }
  }
}

}  // namespace dstrain
