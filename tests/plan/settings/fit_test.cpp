#include "runtime/plan/settings/fit.h"

#include <fmt/core.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "launcher/implementations.h"
#include "runtime/core/text.h"
#include "tests/support/models.h"

using namespace dstrain;

namespace {

Job some_job() {
  Job job;
  job.ranks = 4;
  job.model = GptLite{.n_layer = 4, .n_embd = 64, .n_head = 2, .block_size = 64, .vocab_size = 100};
  job.batch = {.train_batch = 32, .micro_batch = 8, .accumulation = 1};
  return job;
}

bool offers(const std::vector<Variant>& variants, const std::string& settings) {
  return std::any_of(variants.begin(), variants.end(),
                     [&](const Variant& v) { return v.settings == settings; });
}

}  // namespace

TEST_CASE("every setting that could help is planned, cheapest first") {
  const Job job = some_job();
  const std::vector<Variant> all = single_changes(job, plan_inputs(job));
  for (const char* settings :
       {"--set zero_optimization.stage=1", "--set zero_optimization.stage=2",
        "--set zero_optimization.stage=3", "--set dstrain.recompute=selective",
        "--set dstrain.recompute=1",
        "--set train_micro_batch_size_per_gpu=4 --set gradient_accumulation_steps=2",
        "--set train_micro_batch_size_per_gpu=1 --set gradient_accumulation_steps=8"})
    CHECK(offers(all, settings));
  CHECK(all.size() == 8);
  CHECK(std::is_sorted(all.begin(), all.end(),
                       [](const Variant& a, const Variant& b) { return a.slowdown < b.slowdown; }));
  Job alone = job;
  alone.ranks = 1;
  for (const Variant& v : single_changes(alone, plan_inputs(alone)))
    CHECK(v.settings.find("stage") == std::string::npos);
}

TEST_CASE("gradients, masters and moments in 16 bits are ways to fit that are told apart") {
  Job job = some_job();
  CHECK(rounding_changes(job, plan_inputs(job)).empty());
  job.dtype = job.wire_dtype = DType::bf16;
  job.batch = {.train_batch = 64, .micro_batch = 8, .accumulation = 2};
  const PlanInputs inputs = plan_inputs(job);
  const std::vector<RoundingVariant> all = rounding_changes(job, inputs);
  REQUIRE(all.size() == 3);
  CHECK(all[0].settings == "--set data_types.grad_accum_dtype=bf16");
  CHECK(all[1].settings == "--set bf16.bf16_master_weights_and_grads=true");
  CHECK(all[2].settings ==
        "--set bf16.bf16_master_weights_and_grads=true --set bf16.bf16_optimizer_states=true");
  CHECK_THAT(std::string(all[1].cost), Catch::Contains("1/512 of a weight"));
  int64_t before = planned_bytes(job, inputs);
  for (const RoundingVariant& v : all) {
    CHECK(v.bytes < before);
    before = v.bytes;
  }
  for (const RoundingVariant& v : all) CHECK_FALSE(offers(single_changes(job, inputs), v.settings));
  CHECK_THAT(changes_text(job, inputs),
             Catch::Contains("with more rounding, which changes the numbers\n") &&
                 Catch::Contains("(sums of micro-batches round)"));
  CHECK_THAT(advice_to_fit(job, all[1].bytes, inputs),
             Catch::Contains("round more: --set bf16.bf16_master_weights_and_grads=true (") &&
                 Catch::Contains("or --set data_types.grad_accum_dtype=bf16 (") &&
                 Catch::Contains(", not enough alone; sums of micro-batches round)"));
  const int64_t planned = planned_bytes(job, inputs);
  for (const RoundingVariant& v : all) CHECK(v.saved == planned - v.bytes);
  for (const std::string& text : {changes_text(job, inputs), advice_to_fit(job, 1, inputs)})
    for (const RoundingVariant& v : all)
      CHECK_THAT(
          text, Catch::Contains(fmt::format("saves {}", bytes_text(static_cast<double>(v.saved)))));
  // What a job has already, or cannot have, is not offered.
  job.grad_dtype = job.master_dtype = DType::bf16;
  CHECK(rounding_changes(job, inputs).size() == 1);
  job.master_dtype = DType::f32;
  job.optimizer.kind = OptimizerKind::lion;
  CHECK(rounding_changes(job, inputs).empty());
}

TEST_CASE("a sample that fits no rank is divided among more ranks") {
  Job job;
  job.model =
      GptLite{.n_layer = 1, .n_embd = 64, .n_head = 4, .block_size = 4096, .vocab_size = 100};
  job.batch = {.train_batch = 1, .micro_batch = 1, .accumulation = 1};
  job.recompute = {RecomputeMode::interval, 1};
  job.offload.optimizer = OffloadTo::cpu;
  const PlanInputs inputs = plan_inputs(job);
  Job two = job;
  two.ranks = two.sequence_ranks = 2;
  job.device_memory = two.device_memory = planned_memory(two, inputs).device;
  CHECK(lack_of_device_memory(two, inputs).empty());
  CHECK_THAT(lack_of_device_memory(job, inputs),
             Catch::Contains("divide each sample among ranks, --num_gpus 2 "
                             "--sequence_parallel_size 2"));
}

TEST_CASE("a job needs what the rank with the most memory needs, whose whole matrices are others") {
  Job job = some_job();
  job.model =
      GptLite{.n_layer = 1, .n_embd = 64, .n_head = 2, .block_size = 16, .vocab_size = 1000};
  job.ranks = 8;
  job.batch = {.train_batch = 8, .micro_batch = 1, .accumulation = 1};
  job.zero_stage = 1;
  job.optimizer.kind = OptimizerKind::muon;
  const PlanInputs inputs = plan_inputs(job);
  int64_t most = 0, least = INT64_MAX;
  for (int rank = 0; rank < job.ranks; ++rank) {
    const int64_t bytes = make_rank_plan(job, place_of(job, rank), inputs).memory.total();
    most = std::max(most, bytes);
    least = std::min(least, bytes);
  }
  CHECK(least < most);
  CHECK(planned_memory(job, inputs).device == most);
}

TEST_CASE("a loss in pieces is a way to fit where logits are large") {
  Job job = some_job();
  const std::string pieces = "--set dstrain.loss_chunks=8";
  CHECK_FALSE(offers(single_changes(job, plan_inputs(job)), pieces));
  job.model.set("block_size", 1024);
  job.model.set("vocab_size", 50257);
  const int64_t before = planned_bytes(job, plan_inputs(job));
  const std::vector<Variant> variants = single_changes(job, plan_inputs(job));
  REQUIRE(offers(variants, pieces));
  for (const Variant& v : variants)
    if (v.settings == pieces) CHECK(v.bytes < before - int64_t{8} * 1024 * 50257 * 4 / 2);
  job.loss_chunks = 8;
  CHECK_FALSE(offers(single_changes(job, plan_inputs(job)), pieces));
}

TEST_CASE("MLPs in pieces are a way to fit where activations are large, which takes longer") {
  Job job = some_job();
  const std::string pieces = "--set dstrain.mlp_chunks=8";
  CHECK_FALSE(offers(single_changes(job, plan_inputs(job)), pieces));
  job.model = GptLite{
      .n_layer = 3, .n_embd = 64, .n_head = 2, .block_size = 8192, .gelu = true, .vocab_size = 11};
  job.loss_chunks = job.mlp_chunks = 0;
  const int64_t before = planned_bytes(job, plan_inputs(job));
  const std::vector<Variant> variants = single_changes(job, plan_inputs(job));
  REQUIRE(offers(variants, pieces));
  for (const Variant& v : variants)
    if (v.settings == pieces) {
      // Two hidden values of each layer, of 4 times as many columns.
      CHECK(v.bytes < before - job.batch.micro_batch * 8192 * 64 * 4 * 2 * 3 * 4 / 2);
      CHECK(v.slowdown > 1);
    }
  job.mlp_chunks = 8;
  CHECK_FALSE(offers(single_changes(job, plan_inputs(job)), pieces));
}

TEST_CASE("rows that a tensor group gathers again are a way to fit, where it keeps them") {
  Job job = some_job();
  const std::string again = "--set dstrain.gather_again=true";
  CHECK_FALSE(offers(single_changes(job, plan_inputs(job)), again));
  job.tensor_ranks = 2;
  job.batch.train_batch = 16;
  const int64_t kept = planned_bytes(job, plan_inputs(job));
  const std::vector<Variant> variants = single_changes(job, plan_inputs(job));
  REQUIRE(offers(variants, again));
  for (const Variant& v : variants)
    if (v.settings == again) {
      CHECK(v.bytes < kept);
      CHECK(v.slowdown > 1);
    }
  // Recompute of layers gathers again in any case.
  job.recompute = {RecomputeMode::interval, 1};
  CHECK_FALSE(offers(single_changes(job, plan_inputs(job)), again));
  job.recompute = {};
  job.gather_again = GatherAgain::on;
  CHECK_FALSE(offers(single_changes(job, plan_inputs(job)), again));
  CHECK(planned_bytes(job, plan_inputs(job)) < kept);
}

TEST_CASE("offload is a way to fit where the device's memory is what is short") {
  Job job = some_job();
  const std::string offload = "--set zero_optimization.offload_optimizer.device=cpu";
  CHECK_FALSE(offers(single_changes(job, plan_inputs(job)), offload));
  job.device_memory = 1 << 20;
  const std::vector<Variant> limited = single_changes(job, plan_inputs(job));
  CHECK(limited.size() == 10);  // with the two ways to offload
  CHECK(offers(limited, offload));
  CHECK(offers(limited,
               "--set zero_optimization.stage=3 --set "
               "zero_optimization.offload_optimizer.device=cpu --set "
               "zero_optimization.offload_param.device=cpu --set "
               "zero_optimization.stage3_max_reuse_distance=0"));
  Job gathered = job;
  gathered.zero_stage = 3;
  CHECK(offers(single_changes(gathered, plan_inputs(job)),
               "--set zero_optimization.stage3_max_reuse_distance=0"));
  const PlannedMemory before = planned_memory(job, plan_inputs(job));
  CHECK(before.host == 0);
  for (const Variant& v : limited)
    if (v.settings == offload) CHECK(v.bytes < before.device);
  job.offload.optimizer = OffloadTo::cpu;
  CHECK_FALSE(offers(single_changes(job, plan_inputs(job)), offload));
  const PlannedMemory after = planned_memory(job, plan_inputs(job));
  CHECK(after.device < before.device);
  CHECK(after.host > 0);
  CHECK(planned_bytes(job, plan_inputs(job)) == after.device + after.host);
  const std::string all = "--set zero_optimization.offload_optimizer.ratio=1";
  CHECK_FALSE(offers(single_changes(job, plan_inputs(job)), all));
  job.offload.ratio = 0.25;
  CHECK(offers(single_changes(job, plan_inputs(job)), all));
}

TEST_CASE("plans that are made say what planning the job says, and what its device lacks") {
  Job job = some_job();
  job.pipeline.stages = 2;
  job.zero_stage = 1;
  job.offload.optimizer = OffloadTo::cpu;
  const PlanInputs inputs = plan_inputs(job);
  const PlannedMemory made = planned_memory(make_stage_plans(job, 3, inputs));
  const PlannedMemory planned = planned_memory(job, inputs);
  CHECK(made.device == planned.device);
  CHECK(made.host == planned.host);
  CHECK(made.host > 0);
  CHECK(made.device_pages == planned.device_pages);
  CHECK(made.host_pages == planned.host_pages);
  job.device_memory = made.device;
  CHECK(lack_of_device_memory(job, made, inputs).empty());
  --job.device_memory;
  CHECK_FALSE(lack_of_device_memory(job, made, inputs).empty());
  CHECK(lack_of_device_memory(job, made, inputs) == lack_of_device_memory(job, inputs));
}

TEST_CASE("an optimizer that every rank needs whole is neither sharded nor offloaded") {
  Job job = some_job();
  job.optimizer.kind = OptimizerKind::zero_one_adam;
  job.device_memory = 1 << 20;
  const std::vector<Variant> all = single_changes(job, plan_inputs(job));
  CHECK(offers(all, "--set dstrain.recompute=1"));
  for (const Variant& v : all) CHECK(v.settings.find("zero_optimization") == std::string::npos);
}

TEST_CASE("1-bit Adam is offered stage 1, and nothing else of ZeRO") {
  Job job = some_job();
  job.optimizer.kind = OptimizerKind::one_bit_adam;
  job.device_memory = 1 << 20;
  const std::vector<Variant> all = single_changes(job, plan_inputs(job));
  const std::string sharded = "--set zero_optimization.stage=1";
  CHECK(offers(all, sharded));
  for (const Variant& v : all)
    CHECK((v.settings == sharded || v.settings.find("zero_optimization") == std::string::npos));
}

TEST_CASE("hooks and sparse gradients are offered no stage that they do not go with") {
  Job job = some_job();
  job.device_memory = 1 << 20;
  job.sparse_gradients = true;
  for (const Variant& v : single_changes(job, plan_inputs(job)))
    CHECK(v.settings.find("zero_optimization") == std::string::npos);
  job.sparse_gradients = false;
  job.hook = {.kind = HookKind::post_local_sgd, .start = 2, .period = 4};
  job.shards = {1, false, false};
  for (const Variant& v : single_changes(job, plan_inputs(job)))
    CHECK(v.settings.find("zero_optimization") == std::string::npos);
  job.hook = {.kind = HookKind::power_sgd, .start = 2};
  job.shards = {};
  const std::vector<Variant> all = single_changes(job, plan_inputs(job));
  CHECK(offers(all, "--set zero_optimization.stage=1"));
  for (const Variant& v : all)
    for (const char* stage : {"stage=2", "stage=3"})
      CHECK(v.settings.find(stage) == std::string::npos);
}

TEST_CASE("what is offered is never exceeded, and changes are combined where one is too few") {
  const Job job = some_job();
  const PlanInputs inputs = plan_inputs(job);
  const std::vector<Variant> singles = single_changes(job, inputs);
  int64_t least = INT64_MAX;
  for (const Variant& v : singles) least = std::min(least, v.bytes);
  const std::vector<Variant> one = ways_to_fit(job, least, inputs);
  REQUIRE(!one.empty());
  CHECK(one.size() <= 3);
  for (const Variant& v : one) CHECK(v.bytes <= least);
  const std::vector<Variant> more = ways_to_fit(job, least - 1, inputs);
  REQUIRE(!more.empty());
  for (const Variant& v : more) CHECK(v.bytes < least);
  CHECK(ways_to_fit(job, 1000, inputs).empty());
  CHECK(advice_to_fit(job, 1000, inputs).find("smaller model") != std::string::npos);
  CHECK(advice_to_fit(job, least, inputs).starts_with("to fit, add --set "));
}
