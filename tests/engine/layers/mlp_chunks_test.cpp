// MLPs in pieces of rows are the same run: bit for bit on the CPU, on any number of ranks and in any layout. mpirun starts
// this program on 1, 2 and 4 ranks.
#include "models/registry.h"
#include "runtime/comm/world.h"
#include "tests/engine/device/submitted_library.h"
#include "tests/engine/stages/pipeline_jobs.h"
#include "tests/support/models.h"
#include "tests/support/skip.h"

using namespace dstrain;

namespace {

constexpr int kFewSteps = 3;

// 1000 rows: parts of 384 rows in fp32 and of 512 in fp16, blocks of 64.
Job long_job(int ranks, DType dtype, int64_t accumulation, bool gelu) {
  Job job;
  job.ranks = ranks;
  job.model = GptLite{.n_layer = 2,
                      .n_embd = 12,
                      .n_head = 2,
                      .block_size = 250,
                      .dropout = 0.1,
                      .gelu = gelu,
                      .vocab_size = 61};
  job.batch = {4 * accumulation * ranks, 4, accumulation};
  job.dtype = job.wire_dtype = dtype;
  job.optimizer.weight_decay = 0.1;
  return job;
}

ModelConfig llama(const FineTuning& tuning = {}) {
  ModelConfig model(*model_registry().find("llama"));
  for (const auto& [name, size] :
       std::initializer_list<std::pair<const char*, int64_t>>{{"num_hidden_layers", 2},
                                                              {"hidden_size", 24},
                                                              {"intermediate_size", 96},
                                                              {"num_attention_heads", 4},
                                                              {"num_key_value_heads", 2},
                                                              {"max_position_embeddings", 256},
                                                              {"vocab_size", 61}})
    model.set(name, size);
  model.set("initializer_range", 0.2);
  model.set_fine_tuning(tuning);
  return model;
}

// Returns the products of the forward pass of a rank.
int64_t products(const Job& job) {
  const Backend backend = make_backend(implementations(), DeviceChoice::cpu);
  const RankPlan rank = make_rank_plan(job, place_of(job, 0), {backend.library, 1});
  return std::ranges::count_if(rank.train.program.instructions, [](const Instruction& op) {
    return op.op == OpKind::linear && op.phase == Phase::forward;
  });
}

// Runs a job with and without pieces. `products_of_mlp`: of each of its two layers, which come in two pieces or more.
void check_same(const Job& job, const Dataset& data, Communicator& world, int64_t products_of_mlp) {
  Job pieces = job;
  pieces.mlp_chunks = 3;
  INFO(describe(job));
  REQUIRE(products(pieces) >= products(job) + 2 * products_of_mlp);
  const RunResult expected = run_steps(job, data, world, kFewSteps);
  const RunResult result = run_steps(pieces, data, world, kFewSteps);
  CHECK(difference(expected, result, world) == "");
  CHECK(result.sent_per_step == result.planned_to_send);
  CHECK(result.planned_bytes < expected.planned_bytes);
}

}  // namespace

TEST_CASE("MLPs in pieces change no bit at any stage, with either activation") {
  const RandomDataset data(61, 0.2);
  const auto world = make_communicator();
  for (const DType dtype : {DType::f32, DType::f16})
    for (const bool gelu : {false, true})
      for (const int stage : {0, 2, 3}) {
        Job job = long_job(world->size(), dtype, stage == 0 ? 2 : 1, gelu);
        job.zero_stage = stage;
        job.reduce = stage < 2 ? ReduceMode::boundary : ReduceMode::micro_batch;
        job.overlap_comm = stage == 3;
        job.recompute = stage == 2   ? RecomputeConfig{RecomputeMode::interval, 1}
                        : stage == 3 ? RecomputeConfig{RecomputeMode::selective, 0}
                                     : RecomputeConfig{};
        check_same(job, data, *world, 2);
      }
}

// With tiles of bf16, or without them, a part of the weight gradient's sums has up to 4096 rows.
TEST_CASE("MLPs in pieces of thousands of bf16 rows change no bit") {
  const RandomDataset data(61, 0.2);
  const auto world = make_communicator();
  Job job = long_job(world->size(), DType::bf16, 1, true);
  job.model.set("n_layer", 1);
  job.model.set("block_size", 1100);
  const RunResult expected = run_steps(job, data, *world, 2);
  job.mlp_chunks = 2;
  CHECK(difference(expected, run_steps(job, data, *world, 2), *world) == "");
}

TEST_CASE("gated MLPs with adapters and packed bases come in pieces to the same bits") {
  const RandomDataset data(61, 0.2);
  const auto world = make_communicator();
  const FineTuning tunings[] = {
      {},
      {.groups = {}, .lora = LoraConfig{.r = 3, .alpha = 5, .all_linear = true}},
      {.groups = {},
       .lora = LoraConfig{.r = 2, .alpha = 4, .all_linear = true, .base = BlockFormat::nf4}},
  };
  for (const FineTuning& tuning : tunings)
    for (const RecomputeMode mode :
         {RecomputeMode::none, RecomputeMode::interval, RecomputeMode::selective}) {
      Job job = long_job(world->size(), DType::f32, 1, true);
      job.model = llama(tuning);
      job.recompute = {mode, mode == RecomputeMode::interval ? 1 : 0};
      // Three products of each layer, with adapters those of gate and up and the first one of down, too.
      check_same(job, data, *world, tuning.lora ? 6 : 3);
    }
}

TEST_CASE("MLPs that ranks divide come in pieces to the same bits") {
  const RandomDataset data(61, 0.2);
  const auto world = make_communicator();
  SKIP_UNLESS(world->size() > 1, "layers and samples are divided among several ranks");
  for (const bool gated : {false, true})
    for (const auto& [sequence, tensor] : {std::pair{2, 1}, {1, 2}})
      for (const RecomputeMode mode : {RecomputeMode::none, RecomputeMode::interval}) {
        Job job = long_job(world->size(), DType::f32, 1, true);
        job.model.set("block_size", 500);
        if (gated) {
          job.model = llama();
          job.model.set("max_position_embeddings", int64_t{500});
        }
        job.batch.train_batch /= 2;
        job.sequence_ranks = sequence;
        job.tensor_ranks = tensor;
        job.zero_stage = 3;
        job.reduce = ReduceMode::micro_batch;
        job.recompute = {mode, mode == RecomputeMode::interval ? 1 : 0};
        check_same(job, data, *world, gated ? 3 : 2);
      }
}

TEST_CASE("a pipeline's MLPs in pieces change no bit with any schedule") {
  const RandomDataset data(61, 0.2);
  const auto world = make_communicator();
  SKIP_UNLESS(world->size() > 1, "a pipeline needs several ranks");
  for (const PipelineSchedule schedule :
       {PipelineSchedule::one_f_one_b, PipelineSchedule::interleaved, PipelineSchedule::zb_h1,
        PipelineSchedule::zb_v}) {
    Job job = long_job(world->size(), DType::f32, 2 * 2, true);
    job.batch.train_batch = job.batch.micro_batch * job.batch.accumulation * world->size() / 2;
    job.model.set("n_layer", 4);
    job.pipeline.stages = 2;
    job.pipeline.schedule = schedule;
    job.pipeline.virtual_stages =
        schedule == PipelineSchedule::interleaved || schedule == PipelineSchedule::zb_v ? 2 : 1;
    INFO(describe(job) << ", schedule " << schedule_name(schedule));
    const RunResult expected = run_steps(job, data, *world, kFewSteps);
    job.mlp_chunks = 3;
    const RunResult result = run_steps(job, data, *world, kFewSteps);
    CHECK(difference(expected, result, *world) == "");
    CHECK(result.sent_per_step == result.planned_to_send);
  }
}

TEST_CASE("a device of its own computes MLPs in pieces to the same bits, with offload") {
  const RandomDataset data(61, 0.2);
  const auto world = make_communicator();
  Job job = long_job(world->size(), DType::f32, 2, true);
  job.recompute = {RecomputeMode::interval, 1};
  const RunResult expected = run_steps(job, data, *world, kFewSteps);
  job.mlp_chunks = 3;
  job.offload.activations = OffloadTo::cpu;
  CHECK(difference(expected, run_steps(job, data, *world, kFewSteps, 1, submitted_backend()),
                   *world) == "");
}

// Products on a GPU add all rows of a weight gradient in one chain, so those are rounded in another order.
TEST_CASE("a GPU's kernels compute MLPs in pieces within rounding") {
  const RandomDataset data(61, 0.2);
  const auto world = make_communicator();
  SKIP_UNLESS(world->size() <= 2, "the emulated device is slow: on 1 and 2 ranks only");
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Job job = long_job(world->size(), dtype, 1, true);
    job.device = DeviceChoice::emulated;
    job.model.set("n_layer", 1);
    job.model.set("block_size", 75);  // 300 rows
    const RunResult expected = run_steps(job, data, *world, kFewSteps, 1,
                                         make_backend(implementations(), DeviceChoice::emulated));
    job.mlp_chunks = 3;
    const RunResult result = run_steps(job, data, *world, kFewSteps, 1,
                                       make_backend(implementations(), DeviceChoice::emulated));
    CHECK(result.loss[0] == expected.loss[0]);
    CHECK(result.planned_bytes < expected.planned_bytes);
    for (size_t i = 1; i < kFewSteps; ++i) {
      CHECK(result.loss[i] == Approx(expected.loss[i]).epsilon(1e-5));
      CHECK(result.norm[i] == Approx(expected.norm[i]).epsilon(1e-3));
    }
  }
}
