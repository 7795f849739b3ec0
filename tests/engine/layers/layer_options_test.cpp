// What else a run has where ranks divide layers and samples: other optimizers, parameters and gradients that travel
// quantized, shards, a loss in pieces, adapters. mpirun starts this program.
#include <algorithm>
#include <catch2/catch.hpp>

#include "runtime/comm/world.h"
#include "tests/engine/layers/layer_layouts.h"
#include "tests/engine/layers/rounded_weights.h"
#include "tests/engine/stages/optimizers.h"
#include "tests/engine/test_rank.h"
#include "tests/support/sample.h"
#include "tests/support/skip.h"

namespace dstrain {
namespace {

// Returns GPT-lite, whose blocks join queries, keys and values, and Qwen3, whose head is tied. Neither has biases of keys,
// whose exact gradient is 0, so that optimizers make steps of what rounding leaves.
std::vector<ModelConfig> two_models(const Layout& layout) {
  const std::vector<ModelConfig> all = models_of(layout);
  const auto qwen3 =
      std::ranges::find(all, "qwen3", [](const ModelConfig& model) { return model.family().type; });
  REQUIRE(qwen3 != all.end());
  return {all.front(), *qwen3};
}

// Returns the optimizers whose state has all bits. Configurations refuse 8-bit state where ranks divide layers, and where sums
// have another order a code of 8 bits may be the next one, which moves a weight by more than rounding does.
std::vector<OptimizerConfig> exact_optimizers() {
  std::vector<OptimizerConfig> exact = other_optimizers(0.1);
  std::erase_if(exact, [](const OptimizerConfig& optimizer) {
    return optimizer.kind == OptimizerKind::adam_8bit || optimizer.kind == OptimizerKind::lion_8bit;
  });
  return exact;
}

// Calls f with each layout of the world's ranks and a stage 3 job of each of two models, where ranks divide parameters.
template <class F>
void for_each_sharded(const Communicator& world, DType dtype, const F& f) {
  Sample sample(3);
  for (const Layout& layout : layouts_of(world.size())) {
    if (layout.data * layout.sequence == 1) continue;
    for (const ModelConfig& model : two_models(layout)) {
      if (!sample.takes()) continue;
      Job job = layers_job(model, layout, dtype);
      job.zero_stage = 3;
      job.reduce = ReduceMode::micro_batch;
      job.gather = {.param_persistence = 0, .max_reuse_distance = 0};
      INFO(describe(layout));
      f(job);
    }
  }
}

// 1000 rows a micro-batch: several pieces of a loss. GELU, because rounding near the kink of ReLU gives another gradient.
Job long_job(const Layout& layout, bool tied, DType dtype) {
  Job job = layers_job(GptLite{.n_layer = 2,
                               .n_embd = 12,
                               .n_head = layout.tensor == 3 ? 3 : 4,
                               .block_size = 252,
                               .dropout = 0.1,
                               .gelu = true,
                               .tied_head = tied,
                               .vocab_size = 61},
                       layout, dtype);
  job.batch = {8, 4, 2 / layout.data};
  return job;
}

}  // namespace

TEST_CASE("every optimizer learns with divided layers and samples what it learns on one rank") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  Sample sample(4);
  for (const Layout& layout : layouts_of(world->size()))
    for (const ModelConfig& model : two_models(layout))
      for (const OptimizerConfig& optimizer : exact_optimizers()) {
        if (!sample.takes()) continue;
        Job job = layers_job(model, layout);
        job.optimizer = optimizer;
        INFO(describe(layout) << ": " << describe(job));
        const RunResult result = run_steps(job, data, *world, kLayerSteps);
        check_near(alone(job, data), result, 2e-5, 2e-3);
        CHECK(result.sent_per_step == result.planned_to_send);
      }
}

TEST_CASE("every optimizer has the same bits at each stage and offloaded with divided layers") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  Sample sample(12);
  for (const Layout& layout : layouts_of(world->size()))
    for (const ModelConfig& model : two_models(layout))
      for (const OptimizerConfig& optimizer : exact_optimizers())
        for (const DType dtype : {DType::f32, DType::bf16}) {
          if (!sample.takes()) continue;
          Job job = layers_job(model, layout, dtype);
          job.optimizer = optimizer;
          job.gradient_clipping = 0.5;
          const RunResult expected = run_steps(job, data, *world, 3);
          job.gather = {.param_persistence = 0, .max_reuse_distance = 0};
          for (const int stage : {1, 2, 3}) {
            job.zero_stage = stage;
            job.overlap_comm = stage % 2 == 1;
            INFO(describe(layout) << ": " << describe(job));
            CHECK(difference(expected, run_steps(job, data, *world, 3, stage), *world) == "");
          }
          for (const UpdateOn where : {UpdateOn::host, UpdateOn::device}) {
            job.offload = {
                .optimizer = OffloadTo::cpu, .optimizer_on = where, .parameters = OffloadTo::cpu};
            INFO(describe(layout) << ": " << describe(job));
            CHECK(difference(expected, run_steps(job, data, *world, 3), *world) == "");
          }
        }
}

TEST_CASE("ranks that divide layers and samples compute with the quantized values that travel") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  for (const DType dtype : {DType::f32, DType::bf16})
    for_each_sharded(*world, dtype, [&](Job job) {
      INFO(describe(job));
      const auto plain = first_step(job, data, *world, false);
      const auto rounded = first_step(job, data, *world, true);
      job.quantize.weights = true;
      CHECK(first_step(job, data, *world, false) == rounded);
      CHECK(plain != rounded);
      const RunResult expected = run_steps(job, data, *world, 3);
      CHECK(expected.sent_per_step == expected.planned_to_send);
      job.overlap_comm = true;
      job.gather.max_reuse_distance = 1'000'000'000;
      job.recompute = {RecomputeMode::interval, 1};
      CHECK(difference(expected, run_steps(job, data, *world, 3), *world) == "");
    });
}

TEST_CASE("quantized gradients of divided layers and samples are near those that are not") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const bool feedback : {false, true})
      for_each_sharded(*world, dtype, [&](Job job) {
        const RunResult plain = run_steps(job, data, *world, kLayerSteps);
        job.quantize.gradients = true;
        job.quantize.feedback = feedback;
        for (const int group : {0, 1}) {
          job.shards = {group, false, false};
          job.overlap_comm = false;
          INFO(describe(job) << (feedback ? ", feedback" : ""));
          const RunResult expected = run_steps(job, data, *world, kLayerSteps);
          CHECK(expected.sent_per_step == expected.planned_to_send);
          CHECK(expected.sent_per_step < plain.sent_per_step);
          CHECK(expected.norm.front() == Approx(plain.norm.front()).epsilon(0.15));
          CHECK(expected.norm.front() != plain.norm.front());
          CHECK(expected.loss.back() == Approx(plain.loss.back()).epsilon(0.02));
          job.overlap_comm = true;
          CHECK(difference(expected, run_steps(job, data, *world, kLayerSteps), *world) == "");
        }
      });
}

TEST_CASE("shards of ranks that divide layers and samples have the bits of stage 3") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  for (const DType dtype : {DType::f32, DType::bf16})
    for_each_sharded(*world, dtype, [&](Job job) {
      if (job.data_ranks() == 1) return;
      for (const bool weights : {false, true})
        for (const bool lamb : {false, true}) {
          job.shards = {};
          job.offload = {};
          job.overlap_comm = false;
          job.quantize.weights = weights;
          job.optimizer.kind = lamb ? OptimizerKind::lamb : OptimizerKind::adam;
          const RunResult expected = run_steps(job, data, *world, 3);
          job.shards.ranks = 1;  // with its sequence ranks
          INFO(describe(job) << (weights ? ", quantized" : ""));
          const RunResult result = run_steps(job, data, *world, 3);
          CHECK(difference(expected, result, *world) == "");
          CHECK(result.sent_per_step == result.planned_to_send);
          job.overlap_comm = true;
          job.offload = {.optimizer = OffloadTo::cpu, .parameters = OffloadTo::cpu};
          CHECK(difference(expected, run_steps(job, data, *world, 3), *world) == "");
        }
    });
}

TEST_CASE("a loss in pieces changes no bit where ranks divide layers and samples") {
  const RandomDataset data(61, 0.2);
  const auto world = make_communicator();
  Sample sample(6);
  for (const Layout& layout : layouts_of(world->size()))
    for (const bool tied : {false, true})
      for (const DType dtype : {DType::f32, DType::bf16}) {
        if (!sample.takes()) continue;
        Job job = long_job(layout, tied, dtype);
        const RunResult expected = run_steps(job, data, *world, 3);
        const RunResult one = alone(job, data), divided = run_steps(job, data, *world, kLayerSteps);
        if (dtype == DType::f32)
          check_near(one, divided, 1e-5, 1e-3);
        else
          check_rounding(alone_in_fp32(job, data), one, divided, 4e-2);
        job.loss_chunks = 2;
        for (const int stage : {0, 3}) {
          job.zero_stage = stage;
          job.recompute = {stage == 3 ? RecomputeMode::interval : RecomputeMode::none, 1};
          job.gather = {.param_persistence = 0, .max_reuse_distance = 0};
          INFO(describe(layout) << ": " << describe(job) << (tied ? ", tied" : ""));
          const RunResult result = run_steps(job, data, *world, 3);
          CHECK(difference(expected, result, *world) == "");
          CHECK(result.sent_per_step == result.planned_to_send);
        }
      }
}

TEST_CASE("adapters learn with divided layers and samples what they learn on one rank") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  const FineTuning tunings[]{
      {.groups = {}, .lora = LoraConfig{.r = 3, .alpha = 5, .all_linear = true}},
      {.groups = {},
       .lora = LoraConfig{.r = 2,
                          .alpha = 2,
                          .rslora = true,
                          .targets = {"lm_head", "fc", "proj", "c_attn", "c_fc", "q_proj",
                                      "down_proj", "query_key_value"}}},
      {.groups = {{.match = {"*.bias", "*proj*"}, .lr_scale = 2},
                  {.match = {"*ln1*", "*norm*", "*.0.*"}, .trainable = false}}}};
  Sample sample(12);
  for (const Layout& layout : layouts_of(world->size()))
    for (const FineTuning& tuning : tunings)
      for (ModelConfig model : models_of(layout)) {
        if (!sample.takes()) continue;
        model.set_fine_tuning(tuning);
        Job job = layers_job(model, layout);
        job.optimizer.lr = 0.01;
        INFO(describe(layout) << ": " << describe(job));
        const RunResult result = run_steps(job, data, *world, kLayerSteps);
        CHECK(result.loss.front() != result.loss.back());
        check_near(alone(job, data), result, 2e-5, 10 * distance_of(model));
        CHECK(result.sent_per_step == result.planned_to_send);
        const RunResult expected = run_steps(job, data, *world, 3);
        for (const int stage : {1, 3}) {
          job.zero_stage = stage;
          job.recompute = {stage == 3 ? RecomputeMode::interval : RecomputeMode::none, 1};
          job.gather = {.param_persistence = 0, .max_reuse_distance = 0};
          INFO("stage " << stage);
          CHECK(difference(expected, run_steps(job, data, *world, 3), *world) == "");
        }
      }
}

}  // namespace dstrain
