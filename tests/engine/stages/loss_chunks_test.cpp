// A loss in pieces of rows is the same run: bit for bit on the CPU, on any number of ranks. mpirun starts this program
// on 1, 2 and 4 ranks.
#include "runtime/comm/world.h"
#include "tests/engine/device/submitted_library.h"
#include "tests/engine/stages/pipeline_jobs.h"
#include "tests/support/models.h"
#include "tests/support/skip.h"

using namespace dstrain;

namespace {

constexpr int kFewSteps = 3;

// 1000 rows: three parts of 334 rows in fp32, two of 512 in fp16.
Job long_job(int ranks, DType dtype, int64_t accumulation) {
  Job job;
  job.ranks = ranks;
  job.model = GptLite{
      .n_layer = 2, .n_embd = 12, .n_head = 2, .block_size = 250, .dropout = 0.1, .vocab_size = 61};
  job.batch = {4 * accumulation * ranks, 4, accumulation};
  job.dtype = job.wire_dtype = dtype;
  job.optimizer.weight_decay = 0.1;
  return job;
}

int64_t pieces_of(const Job& job,
                  Backend backend = make_backend(implementations(), DeviceChoice::cpu)) {
  const RankPlan rank = make_rank_plan(job, place_of(job, 0), {backend.library, 1});
  return std::ranges::count(rank.train.program.instructions, OpKind::cross_entropy,
                            &Instruction::op);
}

}  // namespace

TEST_CASE("a loss in pieces changes no bit at any stage, with heads tied or not") {
  const RandomDataset data(61, 0.2);
  const auto world = make_communicator();
  for (const DType dtype : {DType::f32, DType::f16})
    for (const bool tied : {false, true})
      for (const int64_t accumulation : {1, 2}) {
        Job job = long_job(world->size(), dtype, accumulation);
        job.model.set("tied_head", tied);
        const RunResult expected = run_steps(job, data, *world, kFewSteps);
        job.loss_chunks = 3;
        REQUIRE(pieces_of(job) == (dtype == DType::f32 ? 3 : 2));
        for (const int stage : {0, 2, 3}) {
          job.zero_stage = stage;
          job.reduce = stage < 2 ? ReduceMode::boundary : ReduceMode::micro_batch;
          if (stage == 2 && accumulation > 1) job.reduce = ReduceMode::boundary;
          job.overlap_comm = stage == 3;
          job.recompute = stage == 2   ? RecomputeConfig{RecomputeMode::interval, 1}
                          : stage == 3 ? RecomputeConfig{RecomputeMode::selective, 0}
                                       : RecomputeConfig{};
          Job plain = job;
          plain.loss_chunks = 1;
          INFO(describe(job) << (tied ? ", tied" : ""));
          const RunResult result = run_steps(job, data, *world, kFewSteps);
          const bool same_sums = job.reduce == ReduceMode::boundary;
          const RunResult wanted = same_sums ? expected : run_steps(plain, data, *world, kFewSteps);
          CHECK(difference(wanted, result, *world) == "");
          CHECK(result.sent_per_step == result.planned_to_send);
        }
      }
}

// With tiles of bf16, or without them, a part of the weight gradient's sums has up to 4096 rows.
TEST_CASE("a loss in pieces of thousands of bf16 rows changes no bit") {
  const RandomDataset data(61, 0.2);
  const auto world = make_communicator();
  Job job = long_job(world->size(), DType::bf16, 1);
  job.model.set("n_layer", 1);
  job.model.set("block_size", 1100);
  const RunResult expected = run_steps(job, data, *world, 2);
  job.loss_chunks = 2;
  REQUIRE(pieces_of(job) >= 2);
  CHECK(difference(expected, run_steps(job, data, *world, 2), *world) == "");
}

TEST_CASE("a pipeline's loss in pieces changes no bit with any schedule") {
  const RandomDataset data(61, 0.2);
  const auto world = make_communicator();
  SKIP_UNLESS(world->size() > 1, "a pipeline needs several ranks");
  for (const bool tied : {false, true})
    for (const PipelineSchedule schedule :
         {PipelineSchedule::gpipe, PipelineSchedule::one_f_one_b, PipelineSchedule::interleaved,
          PipelineSchedule::zb_h1, PipelineSchedule::zb_v}) {
      Job job = long_job(world->size(), DType::f32, 2 * 2);
      job.batch.train_batch = job.batch.micro_batch * job.batch.accumulation * world->size() / 2;
      job.model.set("n_layer", 4);
      job.model.set("tied_head", tied);
      job.pipeline.stages = 2;
      job.pipeline.schedule = schedule;
      job.pipeline.virtual_stages =
          schedule == PipelineSchedule::interleaved || schedule == PipelineSchedule::zb_v ? 2 : 1;
      INFO(describe(job) << ", schedule " << schedule_name(schedule) << (tied ? ", tied" : ""));
      const RunResult expected = run_steps(job, data, *world, kFewSteps);
      job.loss_chunks = 3;
      // Where one stage has both uses of a tied weight, the order in which they add changes.
      const bool reordered = tied && schedule == PipelineSchedule::zb_v;
      const RunResult result = run_steps(job, data, *world, kFewSteps);
      if (reordered)
        for (size_t i = 0; i < result.loss.size(); ++i)
          CHECK(result.loss[i] == Approx(expected.loss[i]).epsilon(1e-6));
      else
        CHECK(difference(expected, result, *world) == "");
      CHECK(result.sent_per_step == result.planned_to_send);
    }
}

TEST_CASE("a device of its own computes the loss in pieces to the same bits") {
  const RandomDataset data(61, 0.2);
  const auto world = make_communicator();
  Job job = long_job(world->size(), DType::f32, 2);
  const RunResult expected = run_steps(job, data, *world, kFewSteps);
  job.loss_chunks = 3;
  REQUIRE(pieces_of(job, submitted_backend()) == 3);
  CHECK(difference(expected, run_steps(job, data, *world, kFewSteps, 1, submitted_backend()),
                   *world) == "");
}

// Products on a GPU add all rows of a weight gradient in one chain, so that of the head is rounded in another order.
TEST_CASE("a GPU's kernels compute the loss in pieces within rounding") {
  const RandomDataset data(61, 0.2);
  const auto world = make_communicator();
  SKIP_UNLESS(world->size() <= 2, "the emulated device is slow: on 1 and 2 ranks only");
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Job job = long_job(world->size(), dtype, 1);
    job.device = DeviceChoice::emulated;
    job.model.set("n_layer", 1);
    job.model.set("block_size", 75);  // 300 rows
    const RunResult expected = run_steps(job, data, *world, kFewSteps, 1,
                                         make_backend(implementations(), DeviceChoice::emulated));
    job.loss_chunks = 3;
    REQUIRE(pieces_of(job, make_backend(implementations(), DeviceChoice::emulated)) == 3);
    const RunResult result = run_steps(job, data, *world, kFewSteps, 1,
                                       make_backend(implementations(), DeviceChoice::emulated));
    CHECK(result.loss[0] == expected.loss[0]);
    CHECK(result.planned_bytes < expected.planned_bytes);
    for (int i = 1; i < kFewSteps; ++i) {
      CHECK(result.loss[static_cast<size_t>(i)] ==
            Approx(expected.loss[static_cast<size_t>(i)]).epsilon(1e-5));
      CHECK(result.norm[static_cast<size_t>(i)] ==
            Approx(expected.norm[static_cast<size_t>(i)]).epsilon(1e-3));
    }
  }
}
