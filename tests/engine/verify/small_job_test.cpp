#include "runtime/engine/verify/small_job.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>

#include "runtime/config/family/family.h"
#include "runtime/config/solve/solve_axes.h"
#include "runtime/config/sparse_gradients.h"
#include "runtime/core/error.h"
#include "runtime/engine/verify/references.h"
#include "runtime/engine/verify/small_model.h"
#include "tests/support/decoders.h"
#include "tests/support/models.h"

namespace dstrain {
namespace {

// A GPT of 1.3B parameters on 16 ranks.
Job large_job() {
  Job job = job_of(GptLite{.n_layer = 24,
                           .n_embd = 2048,
                           .n_head = 16,
                           .block_size = 1024,
                           .gelu = true,
                           .qkv_bias = true,
                           .tied_head = true,
                           .vocab_size = 50257});
  job.ranks = 16;
  job.batch = {.train_batch = 1024, .micro_batch = 4, .accumulation = 16};
  return job;
}

}  // namespace

TEST_CASE("small job: sizes shrink and the rest of the model stays") {
  const Job small = small_job(large_job()).job;
  CHECK(small.model.layers() == 3);
  CHECK(small.model.width() == 32);
  CHECK(small.model.integer("n_head") == 2);
  CHECK(small.model.context() == 16);
  CHECK(small.model.vocabulary() == 97);
  CHECK(small.model.flag("tied_head"));
  CHECK(small.model.text("activation") == "gelu");
  CHECK(small.ranks == 2);
  CHECK(small.batch == BatchConfig{12, 2, 3});
}

TEST_CASE("small job: several experts stay, of which a token chooses, and ranks divide them") {
  Job job = job_of(decoder("mixtral", {{"hidden_size", int64_t{4096}},
                                       {"num_attention_heads", int64_t{32}},
                                       {"num_local_experts", int64_t{8}}}));
  for (const auto& [ranks, experts, expert_ranks] :
       {std::array<int, 3>{1, 8, 1}, {4, 8, 4}, {3, 3, 3}, {6, 6, 3}, {2, 2, 2}}) {
    CAPTURE(ranks, experts, expert_ranks);
    job.ranks = ranks;
    job.expert_ranks = expert_ranks;
    job.batch = {ranks, 1, 1};
    job.model.set("num_local_experts", int64_t{experts});
    const Job small = small_job(job).job;
    CHECK(small.expert_ranks == std::min(expert_ranks, 2));
    CHECK(small.data_ranks() % small.expert_ranks == 0);
    CHECK(small.model.integer("num_local_experts") % small.expert_ranks == 0);
    CHECK(small.model.integer("num_local_experts") >= std::min(experts, 4));
    CHECK(small.model.integer("num_experts_per_tok") == 2);
  }
}

TEST_CASE("small job: a model without heads and one that is small already") {
  Job job =
      job_of(BenchmarkModel{.n_layer = 2048, .in_size = 256, .hidden_size = 256, .out_size = 128});
  job.batch = {.train_batch = 1, .micro_batch = 1, .accumulation = 1};
  const ModelConfig model = small_job(job).job.model;
  CHECK(model.layers() == 3);
  CHECK(model.width() == 24);
  CHECK(model.integer("in_size") == 24);
  CHECK(model.integer("out_size") == 24);
  job.model = BenchmarkModel{.n_layer = 1, .in_size = 3, .hidden_size = 5, .out_size = 2};
  CHECK(small_job(job).job.model == job.model);
}

TEST_CASE("small job: a size that follows from others stays unset") {
  const ModelConfig model(*model_registry().find("gpt2"));
  const ModelConfig small = small_model(model, 3);
  CHECK(small.width() == 32);
  CHECK(small.integer("n_inner") == 0);
  ModelConfig given = model;
  given.set("n_inner", int64_t{1536});
  CHECK(small_model(given, 3).integer("n_inner") == 64);
}

TEST_CASE(
    "small job: a model with latent attention keeps layers of both kinds and groups of experts") {
  ModelConfig model(*model_registry().find("deepseek_v3"));
  ModelConfig small = small_model(model, 3);
  CHECK(small.integer("first_k_dense_replace") == 2);
  CHECK((small.integer("n_routed_experts") == 4 && small.integer("n_group") == 2));
  CHECK((small.integer("q_lora_rank") == 16 && small.integer("qk_rope_head_dim") == 8));
  CHECK(small.integer("num_key_value_heads") == small.integer("num_attention_heads"));
  CHECK_FALSE(model.family().problem(small));
  model.set("q_lora_rank", int64_t{0});
  small = small_model(model, 2);
  CHECK(small.integer("first_k_dense_replace") == 1);
  CHECK(small.integer("q_lora_rank") == 0);
}

TEST_CASE("small job: every axis has two ranks at most, and a pipeline layers for all its parts") {
  Job job = large_job();
  job.ranks = 32;
  job.pipeline.stages = 4;
  job.pipeline.schedule = PipelineSchedule::interleaved;
  job.pipeline.virtual_stages = 3;
  job.batch = {.train_batch = 8 * 8 * 4, .micro_batch = 4, .accumulation = 8};
  const Job small = small_job(job).job;
  CHECK(small.pipeline.stages == 2);
  CHECK(small.pipeline.virtual_stages == 2);
  CHECK(small.ranks == 4);
  CHECK(small.batch.accumulation == 4);
  CHECK(small.model.layers() == 5);
}

TEST_CASE("small job: sequence and tensor ranks have heads, tokens and rows to divide") {
  Job job = large_job();
  job.ranks = 64;
  job.sequence_ranks = 4;
  job.tensor_ranks = 4;
  job.batch = {.train_batch = 4 * 3 * 4, .micro_batch = 3, .accumulation = 4};
  Job small = small_job(job).job;
  CHECK(small.sequence_ranks == 2);
  CHECK(small.tensor_ranks == 2);
  CHECK(small.ranks == 8);
  CHECK(small.data_ranks() == 2);
  CHECK(small.model.integer("n_head") == 8);
  CHECK(divides_among_ranks(small));
  job.model.set_seq_len(100);
  small = small_job(job).job;
  CHECK(small.model.seq_len() == 8);
  job.model.set("n_head", int64_t{16});
  job.pipeline.stages = 2;
  job.ranks *= 2;
  small = small_job(job).job;
  CHECK(small.ranks == 8);
  CHECK(small.data_ranks() == 1);
  CHECK(small.batch.train_batch == small.batch.micro_batch * small.batch.accumulation);
}

TEST_CASE("small job: tensor ranks have as many heads of keys and values each") {
  for (const int64_t kv_heads : {4, 8, 16, 32}) {
    Job job = large_job();
    job.model = ModelConfig(*model_registry().find("llama"));
    job.model.set("num_attention_heads", int64_t{32});
    job.model.set("num_key_value_heads", kv_heads);
    job.model.set("hidden_size", int64_t{4096});
    job.ranks = job.tensor_ranks = 4;
    job.batch = {.train_batch = 4, .micro_batch = 1, .accumulation = 4};
    const Job small = small_job(job).job;
    CAPTURE(kv_heads);
    CHECK(small.model.integer("num_attention_heads") == 4);
    CHECK(small.model.integer("num_key_value_heads") == std::max<int64_t>(kv_heads / 8, 2));
    CHECK(divides_among_ranks(small));
  }
}

TEST_CASE("small job: shards keep replicas and ranks within them") {
  Job job = large_job();
  job.zero_stage = 3;
  job.shards.ranks = 8;
  CHECK(small_job(job).job.shards.ranks == 2);
  CHECK(small_job(job).job.ranks == 4);
  job.shards = {.ranks = 0, .by_host = true};
  CHECK(small_job(job).job.shards == ShardConfig{.ranks = 2});
  CHECK(small_job(job).job.ranks == 4);
}

TEST_CASE("small job: a persistence threshold keeps the same parameters") {
  Job job = large_job();
  job.zero_stage = 3;
  job.gather.param_persistence = 100'000;  // biases and norms, and nothing else
  CHECK(small_job(job).job.gather.param_persistence == 4 * 32);
  job.gather.param_persistence = 0;
  CHECK(small_job(job).job.gather.param_persistence == 0);
  job.gather.max_live_elements = INT64_MAX;
  CHECK(small_job(job).job.gather.max_live_elements == INT64_MAX);
  // Half of the model stays half of it.
  job.gather.max_live_elements = static_cast<int64_t>(job.model.measures().parameters / 2);
  const SmallJob small = small_job(job);
  CHECK(static_cast<double>(small.job.gather.max_live_elements) ==
        Approx(small.job.model.measures().parameters / 2).margin(1));
}

TEST_CASE("small job: the same tensors have state in 8 bits") {
  Job job = large_job();
  job.optimizer.kind = OptimizerKind::adam_8bit;
  job.optimizer.min_8bit_size = 100'000;  // matrices, and neither biases nor norms
  CHECK(small_job(job).job.optimizer.min_8bit_size == 4 * 32 + 1);
  job.optimizer.min_8bit_size = 0;
  CHECK(small_job(job).job.optimizer.min_8bit_size == 1);
}

TEST_CASE("small job: all kinds of steps come in its few steps") {
  Job job = large_job();
  job.optimizer.kind = OptimizerKind::one_bit_adam;
  job.optimizer.freeze_step = 100'000;
  SmallJob small = small_job(job);
  CHECK(small.job.optimizer.freeze_step == 2);
  CHECK(small.steps == 5);
  job.optimizer = {};
  job.hook = {.kind = HookKind::power_sgd, .start = 1000, .rank = 32};
  small = small_job(job);
  CHECK(small.job.hook.start == 1);
  CHECK(small.job.hook.rank == 2);
  CHECK(small.steps == 5);
}

TEST_CASE("small job: a low learning rate rises with the shape of its schedule") {
  Job job = large_job();
  job.schedule = {.kind = ScheduleKind::warmup,
                  .warmup_min_lr = 1e-6,
                  .warmup_max_lr = 1e-5,
                  .warmup_num_steps = 2000};
  const ScheduleConfig s = small_job(job).job.schedule;
  CHECK(s.warmup_max_lr == Approx(5e-3));
  CHECK(s.warmup_min_lr == Approx(5e-4));
  CHECK(s.warmup_num_steps == 2);
}

TEST_CASE("small job: the token embedding's gradient travels as it does in the job") {
  Job job = large_job();
  job.model.set("tied_head", false);
  job.sparse_gradients = true;
  job.batch = {.train_batch = 16, .micro_batch = 1, .accumulation = 1};
  job.model.set("block_size", int64_t{64});
  REQUIRE(sends_token_rows(job));
  CHECK(sends_token_rows(small_job(job).job));
}

TEST_CASE("plain job: data parallelism on as many ranks, with what changes the numbers") {
  Job job = large_job();
  job.model.set("tied_head", false);
  job.pipeline.stages = 2;
  job.zero_stage = 3;
  job.overlap_comm = true;
  job.recompute = {RecomputeMode::interval, 1};
  job.offload.optimizer = OffloadTo::cpu;
  job.reduce = ReduceMode::micro_batch;
  const Job plain = plain_job(job);
  CHECK(plain.ranks == 8);
  CHECK(plain.pipeline.stages == 1);
  CHECK(plain.zero_stage == 0);
  CHECK_FALSE(plain.overlap_comm);
  CHECK(plain.recompute == RecomputeConfig{});
  CHECK(plain.offload == OffloadConfig{});
  CHECK(plain.reduce == ReduceMode::micro_batch);
  CHECK(plain.batch == job.batch);
  job.pipeline.stages = 1;
  job.quantize.gradients = true;
  job.shards = {2, false, false};
  CHECK(plain_job(job).zero_stage == 3);
  CHECK(plain_job(job).shards == job.shards);
}

TEST_CASE("plain and naive job: layers stay divided in the plain one alone") {
  Job job = large_job();
  job.ranks = 32;
  job.model.set("tied_head", false);
  job.pipeline.stages = job.sequence_ranks = job.tensor_ranks = 2;
  job.batch = {.train_batch = 64, .micro_batch = 4, .accumulation = 4};
  job.zero_stage = 2;
  job.gather_again = GatherAgain::on;
  const Job plain = plain_job(job), naive = naive_job(job);
  CHECK(plain.ranks == 16);
  CHECK(plain.sequence_ranks == 2);
  CHECK(plain.tensor_ranks == 2);
  CHECK(plain.data_ranks() == 4);
  CHECK(plain.gather_again == GatherAgain::off);
  CHECK(plain.zero_stage == 0);
  CHECK(naive.ranks == 1);
  CHECK(naive.sequence_ranks == 1);
  CHECK(naive.tensor_ranks == 1);
  CHECK(naive.batch.accumulation == 4 * 4);
}

TEST_CASE("naive job: one rank has the micro-batches of all, and no codec") {
  Job job = large_job();
  job.quantize.weights = true;
  job.zero_stage = 3;
  job.wire_dtype = DType::bf16;
  job.optimizer.kind = OptimizerKind::one_bit_adam;
  const Job naive = naive_job(job);
  CHECK(naive.ranks == 1);
  CHECK(naive.zero_stage == 0);
  CHECK(naive.batch.accumulation == 16 * 16);
  CHECK(naive.quantize == QuantizeConfig{});
  CHECK(naive.wire_dtype == DType::f32);
  CHECK(naive.optimizer.freeze_step > 1'000'000'000);
}

TEST_CASE(
    "plain and naive job: a pipeline that shares a parameter stays a plain one, on one rank none") {
  Job job = large_job();
  job.pipeline = {.stages = 2,
                  .schedule = PipelineSchedule::interleaved,
                  .virtual_stages = 2,
                  .partition = "list",
                  .first_layers = {0, 1, 2, 3}};
  PipelineConfig plain;
  plain.stages = 2;
  plain.schedule = PipelineSchedule::gpipe;
  CHECK(plain_job(job).pipeline == plain);
  CHECK(plain_job(job).ranks == job.ranks);
  CHECK(naive_job(job).pipeline == PipelineConfig{});
  CHECK(naive_job(job).ranks == 1);
  job.pipeline.schedule = PipelineSchedule::zb_v;
  CHECK(plain_job(job).pipeline.schedule == PipelineSchedule::zb_v);
  CHECK(plain_job(job).pipeline.virtual_stages == 2);
  job.model.set("tied_head", false);
  CHECK(plain_job(job).pipeline == PipelineConfig{});
}

TEST_CASE("the tolerance of gradients follows from micro-batches and types") {
  Job job = large_job();
  const double plain = tolerance_of(job).gradient;
  CHECK(plain == Approx(4 * 256 * 0x1p-24));
  job.wire_dtype = DType::bf16;
  CHECK(tolerance_of(job).gradient == Approx(plain + 4 * 0x1p-8));
  CHECK(tolerance_of(job).reason == "256 micro-batches added in fp32, rounded to bf16 to be sent");
  job = large_job();
  job.tensor_ranks = 2;
  const double layers = static_cast<double>(job.model.measures().layers);
  const double micro_batches = 128;
  CHECK(tolerance_of(job).gradient == Approx((4 * micro_batches + 16 * layers) * 0x1p-24));
  CHECK(tolerance_of(job).first_loss == Approx(1e-6));
  Job rounded = job;
  rounded.dtype = DType::f16;
  CHECK(tolerance_of(rounded).gradient == Approx(4 * micro_batches * 0x1p-24 + 0.04));
  rounded.model.set("activation", "relu");
  CHECK(tolerance_of(rounded).gradient == Approx(4 * micro_batches * 0x1p-24 + 0.3));
  CHECK(tolerance_of(rounded).first_loss == Approx(4 * 0x1p-11));
  CHECK(tolerance_of(job).reason == "128 micro-batches added in fp32, divided layers in f32");
  // Attention's logits of weights of deviation s over C channels are of size s^2 C.
  Job large = job;
  large.model = decoder("llama", {{"hidden_size", int64_t{64}}, {"initializer_range", 0.5}});
  const double usual = 16 * static_cast<double>(large.model.measures().layers);
  CHECK(tolerance_of(large).gradient == Approx((4 * micro_batches + 16 * usual) * 0x1p-24));
  CHECK(tolerance_of(large).first_loss == Approx(16e-6));
  CHECK_FALSE(tolerance_of(large).later_norms);
  large.tensor_ranks = 1;
  large.ranks /= 2;
  CHECK(tolerance_of(large).gradient == Approx(4 * micro_batches * 0x1p-24));
}

}  // namespace dstrain
