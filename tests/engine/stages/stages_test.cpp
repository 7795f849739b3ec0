// Stages, bucket sizes and overlap must not change the numbers of a run. mpirun starts this program on 1 to 4
// ranks.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <set>

#include "launcher/implementations.h"
#include "runtime/comm/world.h"
#include "tests/engine/stages/optimizers.h"
#include "tests/engine/stages/run_steps.h"
#include "tests/engine/test_rank.h"
#include "tests/support/models.h"
#include "tests/support/sample.h"
#include "tests/support/skip.h"

using namespace dstrain;

namespace {

Job small_job(int ranks, DType dtype, int64_t accumulation, ReduceMode reduce) {
  Job job;
  job.ranks = ranks;
  job.model = GptLite{
      .n_layer = 3, .n_embd = 30, .n_head = 2, .block_size = 7, .dropout = 0.1, .vocab_size = 13};
  job.batch = {accumulation * 2 * job.ranks, 2, accumulation};
  job.dtype = job.wire_dtype = dtype;
  job.reduce = reduce;
  job.optimizer.weight_decay = 0.1;
  job.weight_decay_exclude = {"*.bias", "*ln*"};
  if (dtype == DType::f16) {  // too large a scale: the first steps are skipped
    job.skip_on_overflow = true;
    job.loss_scale = {.dynamic = true, .initial = 0x1p24, .window = 100, .hysteresis = 1};
  }
  return job;
}

void keep_nothing(Job& job) {
  job.gather = {.param_persistence = 0, .max_reuse_distance = 0};
}

}  // namespace

TEST_CASE("stages, buckets, overlap and reuse never change a bit") {
  const RandomDataset data(13, 0.1);
  const auto comm = make_communicator();
  Communicator& world = *comm;
  constexpr int kSteps = 10;
  // Two ranks run all cases; other numbers of ranks run a selection, unless all are asked for.
  const bool all = world.size() == 2 || std::getenv("DSTRAIN_ALL_STAGES");
  Sample sample(all ? 4 : 2);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const int64_t accumulation : {1, 4})
      for (const ReduceMode reduce : {ReduceMode::boundary, ReduceMode::micro_batch}) {
        Job job = small_job(world.size(), dtype, accumulation, reduce);
        const RunResult expected = run_steps(job, data, world, kSteps);
        if (dtype == DType::f16) {
          REQUIRE(expected.skipped.front() == 1);
          REQUIRE(expected.skipped.back() == 0);
        }
        CHECK(difference(expected, run_steps(job, data, world, kSteps), world).empty());
        for (const int stage : {0, 1, 2, 3})
          for (const int64_t bucket : {1000, 50'000, 500'000'000})
            for (const bool overlap : {false, true})
              for (const int64_t reuse : {int64_t{0}, int64_t{1'000'000'000}}) {
                if (stage < 3 && reuse > 0) continue;
                if (!all && overlap != (bucket > 1000)) continue;
                if (!sample.takes()) continue;
                job.zero_stage = stage;
                job.reduce_bucket_elements = bucket;
                job.overlap_comm = overlap;
                job.gather = {.param_persistence = 0, .max_reuse_distance = reuse};
                INFO(describe(job));
                CHECK(difference(expected, run_steps(job, data, world, kSteps), world) == "");
              }
      }
}

TEST_CASE("gradients held in 16 bits have the same bits at every stage too") {
  const RandomDataset data(13, 0.1);
  const auto comm = make_communicator();
  Communicator& world = *comm;
  constexpr int kSteps = 6;
  Sample sample(2);
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const DType wire : {dtype, DType::f32})
      for (const ReduceMode reduce : {ReduceMode::boundary, ReduceMode::micro_batch}) {
        Job job = small_job(world.size(), dtype, 3, reduce);
        job.loss_scale.initial = 0x1p10;
        job.wire_dtype = wire;
        const RunResult wide = run_steps(job, data, world, kSteps);
        job.grad_dtype = dtype;
        const RunResult expected = run_steps(job, data, world, kSteps);
        CHECK(difference(expected, wide, world) != "");
        CHECK(std::abs(expected.loss.back() / wide.loss.back() - 1) < 0.01);
        for (const int stage : {0, 1, 2, 3})
          for (const bool ahead : {false, true}) {
            if (!sample.takes()) continue;
            job.zero_stage = stage;
            job.overlap_comm = ahead;
            job.reduce_bucket_elements = ahead ? 500'000'000 : 1000;
            job.recompute.mode = ahead ? RecomputeMode::interval : RecomputeMode::none;
            job.recompute.interval = 1;
            keep_nothing(job);
            INFO(describe(job));
            const RunResult result = run_steps(job, data, world, kSteps);
            CHECK(difference(expected, result, world) == "");
            CHECK(result.sent_per_step == result.planned_to_send);
          }
      }
}

TEST_CASE("a single micro-batch is rounded once, to the wire or to what holds its gradients") {
  const RandomDataset data(13, 0.1);
  const auto comm = make_communicator();
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const ReduceMode reduce : {ReduceMode::boundary, ReduceMode::micro_batch}) {
      Job job = small_job(comm->size(), dtype, 1, reduce);
      const RunResult expected = run_steps(job, data, *comm, 4);
      job.grad_dtype = dtype;
      INFO(describe(job));
      CHECK(difference(expected, run_steps(job, data, *comm, 4), *comm) == "");
    }
}

TEST_CASE("every optimizer has the same bits at every stage") {
  const RandomDataset data(13, 0.1);
  const auto comm = make_communicator();
  Communicator& world = *comm;
  std::set<double> losses;
  for (const OptimizerConfig& optimizer : other_optimizers(0.1))
    for (const auto& [dtype, reduce] : {std::pair{DType::f32, ReduceMode::boundary},
                                        {DType::f32, ReduceMode::micro_batch},
                                        {DType::bf16, ReduceMode::boundary},
                                        {DType::f16, ReduceMode::micro_batch}}) {
      Job job = small_job(world.size(), dtype, 2, reduce);
      job.optimizer = optimizer;
      const RunResult expected = run_steps(job, data, world, 10);
      if (dtype == DType::f32 && reduce == ReduceMode::boundary)
        CHECK(losses.insert(expected.loss.back()).second);
      keep_nothing(job);
      for (const int stage : {1, 2, 3}) {
        job.zero_stage = stage;
        job.overlap_comm = stage % 2 == 1;
        INFO(describe(job));
        const RunResult result = run_steps(job, data, world, 10);
        CHECK(difference(expected, result, world) == "");
        CHECK(result.sent_per_step == result.planned_to_send);
      }
    }
}

TEST_CASE("with every optimizer the ranks agree with one rank alone") {
  const RandomDataset data(13);
  const auto comm = make_communicator();
  SelfComm alone;
  for (const OptimizerConfig& optimizer : other_optimizers(0.1)) {
    Job job = small_job(comm->size(), DType::f32, 2, ReduceMode::boundary);
    job.optimizer = optimizer;
    job.zero_stage = 2;
    Job one = job;
    one.ranks = 1;
    one.batch.accumulation *= job.ranks;
    const RunResult expected = run_steps(one, data, alone, 5);
    const RunResult result = run_steps(job, data, *comm, 5);
    INFO(describe(job));
    // Muon enlarges the small singular values of a direction, and with them the rounding of sums over ranks.
    const double epsilon = optimizer.kind == OptimizerKind::muon ? 1e-4 : 1e-6;
    for (size_t i = 0; i < expected.loss.size(); ++i)
      CHECK(result.loss[i] == Approx(expected.loss[i]).epsilon(epsilon));
  }
}

TEST_CASE("recompute changes no bit at any stage") {
  const RandomDataset data(13, 0.1);
  const auto comm = make_communicator();
  Sample sample(3);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const int64_t accumulation : {1, 4}) {
      Job job = small_job(comm->size(), dtype, accumulation, ReduceMode::micro_batch);
      const RunResult expected = run_steps(job, data, *comm, 10);
      for (const int stage : {0, 1, 2, 3})
        for (const RecomputeConfig recompute : {RecomputeConfig{RecomputeMode::interval, 1},
                                                RecomputeConfig{RecomputeMode::interval, 2},
                                                RecomputeConfig{RecomputeMode::selective, 0}}) {
          if (!sample.takes()) continue;
          job.zero_stage = stage;
          job.recompute = recompute;
          job.overlap_comm = true;
          keep_nothing(job);
          INFO(describe(job));
          CHECK(difference(expected, run_steps(job, data, *comm, 10), *comm) == "");
        }
    }
}

TEST_CASE("a communication thread of its own changes no bit either") {
  const RandomDataset data(13);
  const auto comm = make_communicator();
  Communicator& world = *comm;
  for (const int stage : {0, 1, 2, 3}) {
    Job job = small_job(world.size(), DType::bf16, 2, ReduceMode::micro_batch);
    job.zero_stage = stage;
    keep_nothing(job);
    const RunResult expected = run_steps(job, data, world, 3, 2);
    job.overlap_comm = true;
    CHECK(difference(expected, run_steps(job, data, world, 3, 2), world) == "");
  }
}

TEST_CASE("at every stage the ranks agree with one rank alone") {
  const RandomDataset data(13);
  const auto comm = make_communicator();
  Communicator& world = *comm;
  SelfComm alone;
  Job job = small_job(world.size(), DType::f32, 2, ReduceMode::boundary);
  Job one = job;
  one.ranks = 1;
  one.batch.accumulation *= job.ranks;
  const RunResult expected = run_steps(one, data, alone, 5);
  for (const int stage : {0, 1, 2, 3})
    for (const ReduceMode reduce : {ReduceMode::boundary, ReduceMode::micro_batch}) {
      job.zero_stage = stage;
      job.reduce = reduce;
      const RunResult result = run_steps(job, data, world, 5);
      for (size_t i = 0; i < expected.loss.size(); ++i) {
        CHECK(result.loss[i] == Approx(expected.loss[i]).epsilon(1e-6));
        CHECK(result.norm[i] == Approx(expected.norm[i]).epsilon(1e-6));
      }
    }
}

TEST_CASE("the bytes that are sent are the plan's, and the formula's") {
  const RandomDataset data(13);
  const auto comm = make_communicator();
  Communicator& world = *comm;
  SKIP_UNLESS(world.size() > 1, "one rank sends nothing");
  const PlanInputs inputs{make_planning_library(implementations(), DeviceKind::cpu), 1};
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int64_t accumulation : {1, 3})
      for (const ReduceMode reduce : {ReduceMode::boundary, ReduceMode::micro_batch})
        for (const int stage : {0, 1, 2, 3}) {
          Job job = small_job(world.size(), dtype, accumulation, reduce);
          job.model.set("n_embd", 64);
          job.zero_stage = stage;
          job.overlap_comm = true;
          keep_nothing(job);
          const RunResult result = run_steps(job, data, world, 2);
          INFO(describe(job));
          CHECK(result.sent_per_step == result.planned_to_send);
          const Plan plan = make_rank_plan(job, place_of(job, world.rank()), inputs).train;
          double gathered_twice = 0, all = 0;  // elements
          for (const Unit& unit : plan.program.units) {
            all += static_cast<double>(unit.elements);
            if (unit.name.starts_with("blocks"))
              gathered_twice += static_cast<double>(unit.elements);
          }
          const double a =
              reduce == ReduceMode::micro_batch ? static_cast<double>(accumulation) : 1;
          // Embedding and head are gathered once a micro-batch: the backward pass of the embedding reads no
          // weight, and that of the head follows its forward pass at once.
          const double parameters = stage == 0 ? 0
                                    : stage == 3
                                        ? static_cast<double>(accumulation) * (all + gathered_twice)
                                        : all;
          const double gradients = stage == 0 ? 2 * a * all : a * all;
          const double n = job.ranks;
          CHECK(static_cast<double>(result.sent_per_step) ==
                Approx((parameters + gradients) * static_cast<double>(size_of(dtype)) * (n - 1) / n)
                    .epsilon(0.001));
        }
}
