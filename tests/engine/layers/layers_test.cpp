// Ranks that have parts of the same layers (tensor parallelism) and of the same samples (sequence parallelism) train as one
// rank does. mpirun starts this program.
#include <fmt/core.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "runtime/comm/self_comm.h"
#include "runtime/comm/world.h"
#include "tests/engine/stages/run_steps.h"
#include "tests/engine/test_rank.h"
#include "tests/support/decoders.h"
#include "tests/support/models.h"
#include "tests/support/sample.h"
#include "tests/support/skip.h"

namespace dstrain {
namespace {

constexpr int kLayerSteps = 10;

// How the ranks of a run are divided.
struct Layout {
  int stages = 1, data = 1, sequence = 1, tensor = 1;

  int ranks() const { return stages * data * sequence * tensor; }
};

std::string describe(const Layout& layout) {
  return fmt::format("{} stages x {} data x {} sequence x {} tensor ranks", layout.stages,
                     layout.data, layout.sequence, layout.tensor);
}

// Returns the layouts of as many ranks that divide layers or samples among at most 4 ranks.
std::vector<Layout> layouts_of(int ranks) {
  std::vector<Layout> list;
  for (const int stages : {1, 2})
    for (const int data : {1, 2})
      for (const int sequence : {1, 2, 4})
        for (const int tensor : {1, 2, 3, 4}) {
          const Layout layout{stages, data, sequence, tensor};
          if (layout.ranks() == ranks && sequence * tensor > 1 && sequence * tensor <= 4)
            list.push_back(layout);
        }
  return list;
}

// Each with 4 heads of queries, or 6 for 3 tensor ranks, and with widths that few numbers of ranks divide.
std::vector<ModelConfig> models_of(const Layout& layout) {
  const int64_t heads = layout.tensor == 3 ? 6 : 4;
  ModelConfig gpt2(*model_registry().find("gpt2"));
  for (const auto& [name, size] :
       std::initializer_list<std::pair<const char*, int64_t>>{{"n_layer", 2},
                                                              {"n_embd", 24},
                                                              {"n_head", heads},
                                                              {"n_positions", 12},
                                                              {"n_inner", 37},
                                                              {"vocab_size", 13}})
    gpt2.set(name, size);
  gpt2.set("initializer_range", 0.2);
  std::vector<ModelConfig> models{GptLite{.n_layer = 2,
                                          .n_embd = 24,
                                          .n_head = heads,
                                          .block_size = 12,
                                          .gelu = true,
                                          .vocab_size = 13},
                                  GptLite{.n_layer = 2,
                                          .n_embd = 24,
                                          .n_head = heads,
                                          .block_size = 12,
                                          .qkv_bias = true,
                                          .tied_head = true,
                                          .vocab_size = 14},
                                  gpt2};
  const int64_t kv_heads = layout.tensor == 3 ? 1 : 2;  // fewer than 4 ranks of either group
  models.push_back(decoder("llama", {{"num_hidden_layers", int64_t{2}},
                                     {"num_attention_heads", heads},
                                     {"num_key_value_heads", kv_heads},
                                     {"attention_bias", true},
                                     {"mlp_bias", true},
                                     {"max_position_embeddings", int64_t{12}}}));
  models.push_back(decoder("qwen3", {{"num_hidden_layers", int64_t{2}},
                                     {"num_attention_heads", heads},
                                     {"num_key_value_heads", kv_heads},
                                     {"head_dim", int64_t{6}},
                                     {"tie_word_embeddings", true},
                                     {"max_position_embeddings", int64_t{12}}}));
  return models;
}

Job layers_job(const ModelConfig& model, const Layout& layout, DType dtype = DType::f32) {
  Job job;
  job.model = model;
  job.ranks = layout.ranks();
  job.pipeline.stages = layout.stages;
  job.sequence_ranks = layout.sequence;
  job.tensor_ranks = layout.tensor;
  job.batch = {8, 2, 4 / layout.data};
  job.dtype = job.wire_dtype = dtype;
  job.optimizer.weight_decay = 0.1;
  job.weight_decay_exclude = {"*norm*", "*.bias"};
  return job;
}

// Checks that losses and norms are within a relative tolerance, and weights within what ten steps make of it.
void check_near(const RunResult& expected, const RunResult& result, double tolerance,
                double of_weights) {
  REQUIRE(result.loss.size() == expected.loss.size());
  for (size_t i = 0; i < expected.loss.size(); ++i) {
    CHECK(result.loss[i] == Approx(expected.loss[i]).epsilon(tolerance));
    CHECK(result.norm[i] == Approx(expected.norm[i]).epsilon(tolerance));
  }
  if (result.weights.empty()) return;
  REQUIRE(result.weights.size() == expected.weights.size());
  double largest = 0;
  for (size_t i = 0; i < result.weights.size(); ++i)
    largest = std::max(largest, std::abs(static_cast<double>(result.weights[i]) -
                                         static_cast<double>(expected.weights[i])));
  CHECK(largest < of_weights);
}

// Returns how far weights may be apart after ten steps of Adam. The exact gradient of a key's bias is 0, and Adam makes steps of
// what rounding leaves of it.
double distance_of(const ModelConfig& model) {
  return model.family().type == "gpt2" ? 1e-2 : 2e-4;
}

RunResult on_one_rank(const ModelConfig& model, const Dataset& data, DType dtype = DType::f32) {
  SelfComm self;
  return run_steps(layers_job(model, {}, dtype), data, self, kLayerSteps);
}

}  // namespace

TEST_CASE("ranks that divide layers and samples learn what one rank learns") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  Sample sample(5);
  for (const Layout& layout : layouts_of(world->size()))
    for (const ModelConfig& model : models_of(layout)) {
      if (!sample.takes()) continue;
      const Job job = layers_job(model, layout);
      INFO(describe(layout) << ": " << describe(job));
      const RunResult result = run_steps(job, data, *world, kLayerSteps);
      check_near(on_one_rank(model, data), result, 2e-6, distance_of(model));
      CHECK(result.sent_per_step == result.planned_to_send);
    }
}

TEST_CASE(
    "ranks that divide layers and samples have the same bits at every stage, again and offloaded") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  Sample sample(8);
  for (const Layout& layout : layouts_of(world->size()))
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const ModelConfig& model : models_of(layout)) {
        if (!sample.takes()) continue;
        Job job = layers_job(model, layout, dtype);
        const RunResult expected = run_steps(job, data, *world, 3);
        for (const int stage : {0, 1, 2, 3}) {
          constexpr RecomputeMode kModes[]{RecomputeMode::none, RecomputeMode::selective,
                                           RecomputeMode::none, RecomputeMode::interval};
          job.zero_stage = stage;
          job.recompute = {kModes[stage], 1};
          job.overlap_comm = stage % 2 == 1;
          job.gather = {.param_persistence = 0, .max_reuse_distance = 0};
          INFO(describe(layout) << ": " << describe(job));
          CHECK(difference(expected, run_steps(job, data, *world, 3, 1 + stage % 2), *world) == "");
        }
        job.offload.optimizer = job.offload.parameters = OffloadTo::cpu;
        job.offload.optimizer_on = UpdateOn::host;
        INFO(describe(layout) << ": " << describe(job));
        CHECK(difference(expected, run_steps(job, data, *world, 3), *world) == "");
      }
}

TEST_CASE("ranks that divide layers and samples stay within the rounding of 16 bits") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  Sample sample(5);
  for (const Layout& layout : layouts_of(world->size()))
    for (const ModelConfig& model : models_of(layout)) {
      if (!sample.takes()) continue;
      const Job job = layers_job(model, layout, DType::bf16);
      INFO(describe(layout) << ": " << describe(job));
      check_near(on_one_rank(model, data, DType::bf16), run_steps(job, data, *world, kLayerSteps),
                 2e-2, 2e-2);
    }
}

TEST_CASE("ranks that divide layers and samples do so on emulated devices") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  SKIP_UNLESS(world->size() == 2, "the emulated device is slow: on 2 ranks only");
  Sample sample(4);
  for (const Layout& layout : layouts_of(2))
    for (const ModelConfig& model : models_of(layout))
      for (const DType dtype : {DType::f32, DType::bf16}) {
        if (!sample.takes()) continue;
        Job job = layers_job(model, layout, dtype);
        job.batch = {2, 2, 1};
        const RunResult cpu = run_steps(job, data, *world, 1);
        job.device = "emulated";
        job.zero_stage = 3;
        INFO(describe(layout) << ": " << describe(job));
        const RunResult device =
            run_steps(job, data, *world, 1, 1, make_backend(implementations(), "emulated"));
        const double tolerance = dtype == DType::f32 ? 1e-5 : 2e-2;
        CHECK(device.loss[0] == Approx(cpu.loss[0]).epsilon(tolerance));
        CHECK(device.norm[0] == Approx(cpu.norm[0]).epsilon(tolerance));
      }
}

}  // namespace dstrain
