// A model of rms_norm, rotary and gated has the same bits at every stage. mpirun starts this program.
#include "tests/support/rotary_model.h"

#include <catch2/catch.hpp>

#include "launcher/implementations.h"
#include "runtime/comm/self_comm.h"
#include "runtime/comm/world.h"
#include "tests/engine/stages/run_steps.h"
#include "tests/engine/test_rank.h"
#include "tests/support/skip.h"

namespace dstrain {
namespace {

constexpr int kRotarySteps = 6;

Job rotary_job(DType dtype, int ranks, bool frozen, int stages = 1) {
  Job job;
  job.model = RotaryModel{.depth = 3, .frozen = frozen};
  job.ranks = ranks;
  job.pipeline.stages = stages;
  job.batch = {4 * ranks / stages, 2, 2};
  job.dtype = job.wire_dtype = dtype;
  job.optimizer.weight_decay = 0.1;
  job.weight_decay_exclude = {"*norm*"};
  if (dtype == DType::f16) {  // too large a scale: the first steps are skipped
    job.skip_on_overflow = true;
    job.loss_scale = {.dynamic = true, .initial = 0x1p20, .hysteresis = 1};
  }
  return job;
}

}  // namespace

TEST_CASE("rms_norm, rotary and gated have the same bits at every stage and number of threads") {
  const RandomDataset data(13, 0.1);
  const auto comm = make_communicator();
  Communicator& world = *comm;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const bool frozen : {false, true}) {
      Job job = rotary_job(dtype, world.size(), frozen);
      const RunResult expected = run_steps(job, data, world, kRotarySteps);
      CHECK(expected.skipped.front() == (dtype == DType::f16 ? 1 : 0));
      CHECK(expected.skipped.back() == 0);
      for (const int stage : {0, 1, 2, 3})
        for (const RecomputeMode recompute :
             {RecomputeMode::none, RecomputeMode::interval, RecomputeMode::selective}) {
          job.zero_stage = stage;
          job.recompute = {recompute, 1};
          job.overlap_comm = stage % 2 == 1;
          job.gather = {.param_persistence = 0, .max_reuse_distance = 0};
          INFO(describe(job));
          const int threads = recompute == RecomputeMode::interval ? 3 : 1;
          CHECK(difference(expected, run_steps(job, data, world, kRotarySteps, threads), world) ==
                "");
        }
      job.offload.optimizer = job.offload.parameters = OffloadTo::cpu;
      job.offload.optimizer_on = UpdateOn::host;
      CHECK(difference(expected, run_steps(job, data, world, kRotarySteps), world) == "");
    }
}

TEST_CASE("the ranks agree with one rank alone, and the stages of a pipeline have its bits") {
  const auto comm = make_communicator();
  SKIP_UNLESS(comm->size() == 2, "two stages need two ranks");
  const RandomDataset data(13, 0.1);
  SelfComm self;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const bool frozen : {false, true}) {
      const RunResult alone = run_steps(rotary_job(dtype, 1, frozen), data, self, kRotarySteps);
      const RunResult staged =
          run_steps(rotary_job(dtype, 2, frozen, 2), data, *comm, kRotarySteps);
      CHECK(staged.loss == alone.loss);
      CHECK(staged.norm == alone.norm);
      if (comm->rank() == 0) CHECK(staged.weights == alone.weights);
    }
  Job one = rotary_job(DType::f32, 1, false);
  one.batch = {8, 2, 4};
  const RunResult expected = run_steps(one, data, self, kRotarySteps);
  const RunResult two = run_steps(rotary_job(DType::f32, 2, false), data, *comm, kRotarySteps);
  for (size_t i = 0; i < expected.loss.size(); ++i)
    CHECK(two.loss[i] == Approx(expected.loss[i]).epsilon(1e-6));
}

}  // namespace dstrain
