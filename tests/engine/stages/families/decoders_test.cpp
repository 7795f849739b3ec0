// Llama, its relatives and GPT-NeoX have the same bits at every stage, with recompute, with offload and in a pipeline.
// mpirun starts this program.
#include "tests/support/decoders.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "runtime/comm/world.h"
#include "tests/engine/stages/pipeline_jobs.h"
#include "tests/support/skip.h"

namespace dstrain {
namespace {

// Each family with what it alone has, and each kind of position embedding.
std::vector<ModelConfig> decoders() {
  using Text = std::string;
  return {
      decoder("llama", {{"num_key_value_heads", int64_t{2}},
                        {"attention_bias", true},
                        {"mlp_bias", true},
                        {"rope_parameters.rope_type", Text("llama3")},
                        {"rope_parameters.factor", 4.0},
                        {"rope_parameters.original_max_position_embeddings", 4.0}}),
      decoder("mistral", {{"num_key_value_heads", int64_t{1}},
                          {"head_dim", int64_t{10}},
                          {"sliding_window", int64_t{3}},
                          {"rope_parameters.rope_type", Text("linear")},
                          {"rope_parameters.factor", 2.0}}),
      decoder("qwen2", {{"num_key_value_heads", int64_t{2}},
                        {"tie_word_embeddings", true},
                        {"use_sliding_window", true},
                        {"sliding_window", int64_t{4}},
                        {"max_window_layers", int64_t{1}},
                        {"rope_parameters.rope_type", Text("yarn")},
                        {"rope_parameters.factor", 2.0}}),
      decoder("qwen3", {{"num_key_value_heads", int64_t{4}},
                        {"head_dim", int64_t{8}},
                        {"use_sliding_window", true},
                        {"sliding_window", int64_t{2}},
                        {"window_layers", Text("full_attention,sliding_attention,full_attention")},
                        {"rope_parameters.rope_type", Text("dynamic")},
                        {"rope_parameters.factor", 2.0}}),
      decoder("gemma3_text", {{"num_key_value_heads", int64_t{2}},
                              {"head_dim", int64_t{6}},
                              {"query_pre_attn_scalar", int64_t{8}},
                              {"final_logit_softcapping", 3.0},
                              {"sliding_window", int64_t{3}},
                              {"sliding_window_pattern", int64_t{2}}}),
      decoder("mixtral", {{"num_local_experts", int64_t{5}},
                          {"num_experts_per_tok", int64_t{2}},
                          {"num_key_value_heads", int64_t{2}},
                          {"output_router_logits", true},
                          {"router_aux_loss_coef", 0.3}}),
      decoder("qwen2_moe", {{"num_experts", int64_t{4}},
                            {"num_experts_per_tok", int64_t{2}},
                            {"num_key_value_heads", int64_t{2}},
                            {"moe_intermediate_size", int64_t{9}},
                            {"shared_expert_intermediate_size", int64_t{11}},
                            {"dense_layers", Text("1")}}),
      decoder("qwen3_moe", {{"num_experts", int64_t{16}},
                            {"num_experts_per_tok", int64_t{3}},
                            {"num_key_value_heads", int64_t{2}},
                            {"moe_intermediate_size", int64_t{5}},
                            {"norm_topk_prob", true},
                            {"decoder_sparse_step", int64_t{2}}}),
      decoder(
          "olmoe",
          {{"num_experts", int64_t{3}}, {"num_experts_per_tok", int64_t{1}}, {"clip_qkv", 0.8}}),
      decoder("deepseek_v3", {{"n_routed_experts", int64_t{8}},
                              {"n_group", int64_t{4}},
                              {"topk_group", int64_t{2}},
                              {"num_experts_per_tok", int64_t{3}},
                              {"moe_intermediate_size", int64_t{5}},
                              {"first_k_dense_replace", int64_t{1}},
                              {"num_key_value_heads", int64_t{0}},
                              {"q_lora_rank", int64_t{7}},
                              {"kv_lora_rank", int64_t{9}},
                              {"qk_nope_head_dim", int64_t{3}},
                              {"qk_rope_head_dim", int64_t{4}},
                              {"v_head_dim", int64_t{5}}}),
      decoder("gpt_neox",
              {{"rope_parameters.partial_rotary_factor", 0.67}, {"hidden_dropout", 0.1}}),
  };
}

// The gradient of a tied head is rounded otherwise in a pipeline (docs/plan.md). GPT-NeoX has none.
void untie(ModelConfig& model) {
  if (model.family().type != "gpt_neox") model.set("tie_word_embeddings", false);
}

constexpr int kDecoderSteps = 4;

Job decoder_job(const ModelConfig& model, DType dtype, int data_ranks, int stages = 1) {
  Job job;
  job.model = model;
  job.ranks = data_ranks * stages;
  job.pipeline.stages = stages;
  job.batch = {4 * data_ranks, 2, 2};
  job.dtype = job.wire_dtype = dtype;
  job.optimizer.weight_decay = 0.1;
  job.weight_decay_exclude = {"*norm*", "*.bias"};
  if (!model.family().experts_key.empty()) job.experts.z_loss = 0.01;
  if (model.family().has_choice_bias) job.experts.bias_update = 0.02;
  if (dtype == DType::f16) {  // too large a scale: the first steps are skipped
    job.skip_on_overflow = true;
    job.loss_scale = {.dynamic = true, .initial = 0x1p24, .hysteresis = 1};
  }
  return job;
}

}  // namespace

TEST_CASE("decoders have the same bits at every stage, with recompute and with offload") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  for (const ModelConfig& model : decoders())
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      Job job = decoder_job(model, dtype, world->size());
      const RunResult expected = run_steps(job, data, *world, kDecoderSteps);
      CHECK(expected.skipped.front() == (dtype == DType::f16 ? 1 : 0));
      CHECK(std::isfinite(expected.loss.back()));
      for (const int stage : {1, 2, 3}) {
        constexpr RecomputeMode kModes[]{RecomputeMode::selective, RecomputeMode::none,
                                         RecomputeMode::interval};
        job.zero_stage = stage;
        job.recompute = {kModes[stage - 1], 1};
        job.overlap_comm = stage % 2 == 1;
        job.gather = {.param_persistence = 0, .max_reuse_distance = 0};
        INFO(describe(job));
        CHECK(difference(expected, run_steps(job, data, *world, kDecoderSteps, stage), *world) ==
              "");
      }
      job.offload.optimizer = job.offload.parameters = OffloadTo::cpu;
      job.offload.optimizer_on = UpdateOn::host;
      INFO(describe(job));
      CHECK(difference(expected, run_steps(job, data, *world, kDecoderSteps), *world) == "");
    }
}

TEST_CASE("decoders learn the same on one rank and on several") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  SelfComm self;
  for (const ModelConfig& model : decoders()) {
    Job one = decoder_job(model, DType::f32, 1);
    one.batch = {4 * world->size(), 2, 2 * world->size()};
    const RunResult expected = run_steps(one, data, self, kDecoderSteps);
    const Job several = decoder_job(model, DType::f32, world->size());
    const RunResult result = run_steps(several, data, *world, kDecoderSteps);
    INFO(describe(several));
    for (size_t i = 0; i < expected.loss.size(); ++i) {
      CHECK(result.loss[i] == Approx(expected.loss[i]).epsilon(1e-5));
      CHECK(result.norm[i] == Approx(expected.norm[i]).epsilon(1e-5));
    }
  }
}

TEST_CASE("decoders on an emulated device are near those on the CPU") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  SKIP_UNLESS(world->size() == 1, "the emulated device is slow: on 1 rank only");
  for (const ModelConfig& model : decoders())
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Job job = decoder_job(model, dtype, 1);
      job.batch = {2, 2, 1};
      const RunResult cpu = run_steps(job, data, *world, 1);
      job.device = DeviceChoice::emulated;
      job.zero_stage = 3;
      const RunResult device = run_steps(job, data, *world, 1, 1,
                                         make_backend(implementations(), DeviceChoice::emulated));
      INFO(describe(job));
      const double tolerance = dtype == DType::f32 ? 1e-5 : 2e-2;
      CHECK(device.loss[0] == Approx(cpu.loss[0]).epsilon(tolerance));
      CHECK(device.norm[0] == Approx(cpu.norm[0]).epsilon(tolerance));
    }
}

TEST_CASE("decoders have the same bits in a pipeline") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  SKIP_UNLESS(world->size() % 2 == 0, "two stages need an even number of ranks");
  for (ModelConfig model : decoders())
    for (const DType dtype : {DType::f32, DType::bf16}) {
      untie(model);
      Job job = decoder_job(model, dtype, world->size() / 2, 2);
      const RunResult expected = without_pipeline(job, data, *world);
      job.zero_stage = dtype == DType::f32 ? 1 : 3;
      compare(expected, job, data, *world);
    }
}

TEST_CASE("decoders of samples with several documents have the same bits at every stage and cut") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  for (ModelConfig model : decoders())
    for (const DType dtype : {DType::f32, DType::bf16}) {
      untie(model);
      Job job = decoder_job(model, dtype, world->size());
      const RunResult stream = run_steps(job, data, *world, 2);
      job.data.packing = Packing::pack;
      const RunResult expected = run_steps(job, data, *world, 2);
      CHECK(expected.loss.front() != stream.loss.front());
      job.zero_stage = 3;
      job.recompute = {RecomputeMode::interval, 1};
      INFO(describe(job));
      CHECK(difference(expected, run_steps(job, data, *world, 2, 3), *world) == "");
      if (world->size() % 2 != 0) continue;
      Job pipeline = decoder_job(model, dtype, world->size() / 2, 2);
      pipeline.data.packing = Packing::pack;
      compare(without_pipeline(pipeline, data, *world), pipeline, data, *world);
    }
}

TEST_CASE("decoders of samples with several documents are near the CPU's on an emulated device") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  SKIP_UNLESS(world->size() == 1, "the emulated device is slow: on 1 rank only");
  for (const ModelConfig& model : decoders())
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Job job = decoder_job(model, dtype, 1);
      job.batch = {2, 2, 1};
      job.data.packing = Packing::pack;
      const RunResult cpu = run_steps(job, data, *world, 1);
      job.device = DeviceChoice::emulated;
      const RunResult device = run_steps(job, data, *world, 1, 1,
                                         make_backend(implementations(), DeviceChoice::emulated));
      INFO(describe(job));
      const double tolerance = dtype == DType::f32 ? 1e-5 : 2e-2;
      CHECK(device.loss[0] == Approx(cpu.loss[0]).epsilon(tolerance));
      CHECK(device.norm[0] == Approx(cpu.norm[0]).epsilon(tolerance));
    }
}

}  // namespace dstrain
