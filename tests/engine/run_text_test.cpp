#include "runtime/engine/run/run_text.h"

#include <catch2/catch.hpp>
#include <limits>

#include "runtime/core/rank_board.h"
#include "runtime/engine/metrics/metrics_text.h"
#include "runtime/engine/run/trainer.h"
#include "runtime/engine/step/backend.h"
#include "tests/engine/test_rank.h"
#include "tests/support/models.h"

namespace dstrain {
namespace {

Job small_job() {
  Job job;
  job.model = GptLite{.n_layer = 2, .n_embd = 32, .n_head = 2, .block_size = 32, .vocab_size = 58};
  job.batch = {32, 8, 2};
  job.ranks = 2;
  job.steps = 40;
  job.output = "runs/c";
  return job;
}

std::string first_line_of(const Job& job, int64_t done = 0) {
  const PlanInputs inputs{make_planning_library(implementations(), kind_of(job.device)), 1};
  const RankPlan plan = make_rank_plan(job, place_of(job, 0), inputs);
  return first_line(job, plan.train, done, 1);
}

TEST_CASE("a line says which samples a validation leaves out") {
  CHECK(left_out_line(48, 50, 8) == "validation takes 48 of 50 samples, whole micro-batches of 8");
  CHECK(
      left_out_line(0, 1, 8) ==
      "no validation: it takes whole micro-batches of 8 samples, and has 1 sample: give more data "
      "or a larger dstrain.data.val_fraction or dstrain.eval_samples");
}

TEST_CASE("the first line of a run says what it is and where it begins") {
  const std::string what =
      "GPT-lite of 30k parameters, f32, ZeRO stage 0, 2 ranks; batch 32 = micro-batch 8 x "
      "accumulation 2 x 2 ranks; ";
  Job job = small_job();
  CHECK(first_line_of(job) == what + "40 steps from fresh weights");
  job.init_weights = "w.safetensors";
  CHECK(first_line_of(job) == what + "40 steps from the weights in w.safetensors");
  job.steps = 0;
  CHECK(first_line_of(job) == what + "no step: writes the weights in w.safetensors to runs/c");
  job.steps = 40;
  job.resume = "runs/c";
  CHECK(first_line_of(job, 12) == what + "steps 13 to 40, resumed after step 12");
  CHECK(first_line_of(job, 39) == what + "step 40, resumed after step 39");
  CHECK(first_line_of(job, 40) == what + "no step left: resumed after step 40 of 40");
}

TEST_CASE(
    "the first line of a run says how many replicas have the parameters, and of how many ranks") {
  Job job = small_job();
  job.zero_stage = 3;
  job.ranks = 4;
  job.batch = {64, 8, 2};
  const auto stage = [&](int shard_ranks) {
    job.shards.ranks = shard_ranks;
    const std::string line = first_line_of(job);
    return line.substr(line.find("ZeRO"), line.find(", 4 ranks") - line.find("ZeRO"));
  };
  CHECK(stage(0) == "ZeRO stage 3");
  CHECK(stage(1) == "ZeRO stage 3 in 4 replicas of 1 rank");
  CHECK(stage(2) == "ZeRO stage 3 in 2 replicas of 2 ranks");
  CHECK(stage(4) == "ZeRO stage 3 in 1 replica of 4 ranks");
}

TEST_CASE("the first line of a run says how its ranks are divided") {
  Job job = small_job();
  job.ranks = 4;
  job.pipeline.stages = 2;
  CHECK_THAT(first_line_of(job),
             Catch::Contains(", 4 ranks (2 pipeline stages x 2 data-parallel ranks); batch 32 = "
                             "micro-batch 8 x accumulation 2 x 2 data-parallel ranks; "));
}

TEST_CASE("the first line of a run whose steps are long says how long") {
  Job job = small_job();
  job.ranks = 1;
  job.model = GptLite{.vocab_size = 65};
  job.batch = {64, 1, 64};
  const std::string line = first_line_of(job);
  // 85 million weights of layers and head, 6 operations each and more for attention, 131072 tokens.
  CHECK_THAT(line, Catch::Matches(".*; a step is [0-9.]+T operations a rank, very roughly "
                                  "[0-9]+m[0-9]+s"));
  job.device = DeviceChoice::emulated;
  CHECK_THAT(first_line_of(job), !Catch::Contains("roughly"));
}

TEST_CASE("the last line of a run says how far it came, its losses and where its results are") {
  const Job job = small_job();
  CHECK(last_line(job.steps, job.output,
                  {.first_step = 12, .steps = 28, .seconds = 187, .loss = 1.23456}) ==
        "done: step 40 of 40, 3m07s; loss 1.2346; results in runs/c");
  CHECK(last_line(job.steps, job.output,
                  {.steps = 40, .seconds = 1, .loss = 2, .validation_loss = 3}) ==
        "done: step 40 of 40, 1s; loss 2.0000; validation loss 3.0000; results in runs/c");
  CHECK(last_line(job.steps, job.output, {.steps = 3, .stopped = true, .seconds = 1, .loss = 2}) ==
        "stopped after step 3 of 40, 1s; loss 2.0000; results in runs/c; --resume runs/c goes on");
  CHECK(last_line(job.steps, job.output,
                  {.steps = 9, .skipped = 1, .without_targets = 2, .seconds = 1, .loss = 2})
            .find("; 1 of 9 updates skipped (overflow); 2 of 9 updates skipped (no token of the "
                  "batch counts in the loss); loss 2.0000") != std::string::npos);
  CHECK(last_line(job.steps, job.output, {}) == "done: no step, 0s; results in runs/c");
  CHECK(last_line(job.steps, job.output,
                  {.steps = 40, .loss = -std::numeric_limits<double>::quiet_NaN()}) ==
        "done: step 40 of 40, 0s; loss not a finite number; results in runs/c");
}

TEST_CASE("what fails after a step did not fail in its last instruction") {
  Job job = small_job();
  job.ranks = 1;
  job.batch = {1, 1, 1};
  job.eval_interval = 1;
  const RandomDataset data(job.model.integer("vocab_size"));
  const RankBoard board = RankBoard::create(1);
  SelfComm comm;
  RunContext context{implementations()};
  context.comm = &comm;
  context.slot = &board.slot(0);
  Trainer trainer(job, data, context);
  trainer.load();
  trainer.step();
  CHECK(board.slot(0).step == 1);
  CHECK(board.slot(0).progress > 0);
  CHECK(board.slot(0).current_instruction().empty());
}

}  // namespace
}  // namespace dstrain
