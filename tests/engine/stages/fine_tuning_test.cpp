// Adapters and parameter groups have the same bits at every stage, with offload, with recompute and in a pipeline. mpirun
// starts this program.
#include <catch2/catch.hpp>
#include <cmath>

#include "models/registry.h"
#include "runtime/comm/world.h"
#include "tests/engine/stages/pipeline_jobs.h"
#include "tests/support/skip.h"

namespace dstrain {
namespace {

constexpr int kTunedSteps = 4;

// GPT-lite, whose norms have biases and whose blocks join queries, keys and values; and Llama, whose do not.
std::vector<ModelConfig> tuned_models(const FineTuning& tuning) {
  ModelConfig gpt = GptLite{
      .n_layer = 3, .n_embd = 30, .n_head = 2, .block_size = 7, .dropout = 0.1, .vocab_size = 13};
  ModelConfig llama(*model_registry().find("llama"));
  for (const auto& [name, size] :
       std::initializer_list<std::pair<const char*, int64_t>>{{"num_hidden_layers", 3},
                                                              {"hidden_size", 24},
                                                              {"intermediate_size", 21},
                                                              {"num_attention_heads", 4},
                                                              {"num_key_value_heads", 2},
                                                              {"max_position_embeddings", 7},
                                                              {"vocab_size", 13}})
    llama.set(name, size);
  llama.set("initializer_range", 0.2);
  gpt.set_fine_tuning(tuning);
  llama.set_fine_tuning(tuning);
  return {gpt, llama};
}

// An adapter of each product of the blocks; of the head and a half of the others; bases in blocks; groups that freeze some
// norms in part, and scale rates.
std::vector<FineTuning> tunings() {
  return {
      {.groups = {{.match = {"*.lora_A.weight"}, .lr_scale = 0.5, .weight_decay = 0.2}},
       .lora = LoraConfig{.r = 3, .alpha = 5, .dropout = 0.25, .all_linear = true}},
      {.groups = {},
       .lora =
           LoraConfig{.r = 2, .alpha = 2, .rslora = true, .targets = {"lm_head", "fc", "q_proj"}}},
      {.groups = {},
       .lora = LoraConfig{.r = 2, .alpha = 4, .all_linear = true, .base = BlockFormat::nf4}},
      {.groups = {},
       .lora =
           LoraConfig{.r = 2, .alpha = 4, .targets = {"fc", "o_proj"}, .base = BlockFormat::int8}},
      {.groups = {{.match = {"*.bias", "*proj*"}, .lr_scale = 2},
                  {.match = {"*ln1*", "*norm*", "*.0.*"}, .trainable = false}}},
  };
}

Job tuned_job(const ModelConfig& model, DType dtype, int data_ranks, int stages = 1) {
  Job job;
  job.model = model;
  job.ranks = data_ranks * stages;
  job.pipeline.stages = stages;
  job.batch = {4 * data_ranks, 2, 2};
  job.dtype = job.wire_dtype = dtype;
  job.optimizer.lr = 0.05;
  job.optimizer.weight_decay = 0.1;
  return job;
}

// Calls f with a job of each model, fine-tuning and dtype.
template <class F>
void for_each_job(int data_ranks, int stages, F&& f) {
  for (const FineTuning& tuning : tunings())
    for (const ModelConfig& model : tuned_models(tuning))
      for (const DType dtype : {DType::f32, DType::bf16})
        f(tuned_job(model, dtype, data_ranks, stages));
}

}  // namespace

TEST_CASE("adapters and groups have the same bits at every stage, with recompute and offload") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  for_each_job(world->size(), 1, [&](Job job) {
    const RunResult expected = run_steps(job, data, *world, kTunedSteps);
    CHECK(expected.loss.front() != expected.loss.back());
    for (const int stage : {1, 2, 3}) {
      constexpr RecomputeMode kModes[]{RecomputeMode::selective, RecomputeMode::none,
                                       RecomputeMode::interval};
      job.zero_stage = stage;
      job.recompute = {kModes[stage - 1], 1};
      job.gather = {.param_persistence = 0, .max_reuse_distance = 0};
      INFO(describe(job));
      CHECK(difference(expected, run_steps(job, data, *world, kTunedSteps, stage), *world) == "");
    }
    job.offload.optimizer = job.offload.parameters = OffloadTo::cpu;
    job.offload.optimizer_on = UpdateOn::host;
    INFO(describe(job));
    CHECK(difference(expected, run_steps(job, data, *world, kTunedSteps), *world) == "");
  });
}

TEST_CASE("adapters and groups have the same bits in a pipeline") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  SKIP_UNLESS(world->size() % 2 == 0, "two stages need an even number of ranks");
  for_each_job(world->size() / 2, 2, [&](Job job) {
    const RunResult expected = without_pipeline(job, data, *world);
    job.zero_stage = job.dtype == DType::f32 ? 1 : 3;
    compare(expected, job, data, *world);
  });
}

TEST_CASE("frozen weights stay as they are, bit for bit, and all others move") {
  const RandomDataset data(13, 0.1);
  const auto bytes_of = [](const TestRank& rank, const Parameter& p) {
    const Tensor values = rank.model.master(p).values;
    return std::string(values.as<const char>(), static_cast<size_t>(values.bytes()));
  };
  for_each_job(1, 1, [&](const Job& job) {
    const TestRank before(job, data);
    TestRank after(job, data);
    for (int step = 0; step < kTunedSteps; ++step) after.step(0.05f);
    for (const Parameter& p : before.plans.train.program.parameters) {
      INFO(p.name);
      CHECK((bytes_of(before, p) == bytes_of(after, p)) == p.frozen);
    }
  });
}

TEST_CASE("adapters and groups on an emulated device are near those on the CPU") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  SKIP_UNLESS(world->size() == 1, "the emulated device is slow: on 1 rank only");
  for_each_job(1, 1, [&](Job job) {
    job.batch = {2, 2, 1};
    const RunResult cpu = run_steps(job, data, *world, 2);
    job.device = DeviceChoice::emulated;
    const RunResult device =
        run_steps(job, data, *world, 2, 1, make_backend(implementations(), DeviceChoice::emulated));
    INFO(describe(job));
    const double tolerance = job.dtype == DType::f32 ? 1e-5 : 4e-2;
    CHECK(device.loss[1] == Approx(cpu.loss[1]).epsilon(tolerance));
    CHECK(device.norm[1] == Approx(cpu.norm[1]).epsilon(tolerance));
  });
}

}  // namespace dstrain
