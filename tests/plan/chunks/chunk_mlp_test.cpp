// MLPs in pieces of rows: what the plan holds and issues. That numbers stay is tests/engine/layers/mlp_chunks_test.cpp's.
#include <catch2/catch.hpp>
#include <map>

#include "tests/plan/plans.h"
#include "tests/support/models.h"

using namespace dstrain;

namespace {

constexpr int64_t kRows = 512, kWidth = 12, kHidden = 48;

Job mlp_job(int64_t chunks, bool gelu = true) {
  Job job;
  job.model = GptLite{.n_layer = 3,
                      .n_embd = kWidth,
                      .n_head = 3,
                      .block_size = kRows / 2,
                      .gelu = gelu,
                      .vocab_size = 17};
  job.batch = {.train_batch = 12, .micro_batch = 2, .accumulation = 3};
  job.ranks = 2;
  job.eval_interval = 1;
  job.mlp_chunks = chunks;
  return job;
}

ModelConfig llama() {
  ModelConfig model(*model_registry().find("llama"));
  for (const auto& [name, size] : std::initializer_list<std::pair<const char*, int64_t>>{
           {"num_hidden_layers", 2},
           {"hidden_size", 16},
           {"intermediate_size", 40},
           {"num_attention_heads", 4},
           {"num_key_value_heads", 2},
           {"max_position_embeddings", kRows / 2},
           {"vocab_size", 20}})
    model.set(name, size);
  return model;
}

// Returns the most rows of a used buffer with so many columns.
int64_t most_rows(const Program& program, int64_t columns) {
  int64_t most = 0;
  for (const Instruction& op : program.instructions)
    for (const auto* list : {&op.reads, &op.writes})
      for (const BufferId id : *list)
        if (id != kNone && program.at(id).parameter < 0 &&
            program.at(id).lifetime == Lifetime::micro &&
            program.at(id).memory == MemoryClass::activations && program.at(id).shape.rank == 2 &&
            program.at(id).shape[1] == columns)
          most = std::max(most, program.at(program.root(id)).shape[0]);
  return most;
}

size_t count_in(const Plan& plan, OpKind kind, Phase phase, int64_t columns) {
  size_t n = 0;
  for (const Instruction& op : plan.program.instructions)
    n += op.op == kind && op.phase == phase && plan.program.at(op.writes[0]).shape[-1] == columns;
  return n;
}

}  // namespace

TEST_CASE("hidden values of one piece of rows at a time are held, and nothing else changes") {
  for (const bool gelu : {true, false}) {
    CAPTURE(gelu);
    const RankPlan whole = plan_of(mlp_job(1, gelu)), four = plan_of(mlp_job(4, gelu));
    CHECK(most_rows(whole.train.program, kHidden) == kRows);
    CHECK(most_rows(four.train.program, kHidden) == kRows / 4);
    CHECK(most_rows(four.validate.program, kHidden) == kRows / 4);
    const int64_t kept = (gelu ? 2 : 1) * kRows * kHidden * 4;  // of a layer
    CHECK(four.memory.total() < whole.memory.total() - 2 * kept);
    CHECK(wire_bytes(four.train) == wire_bytes(whole.train));
    // Each piece of each layer has the first product twice and the second one once.
    CHECK(count_in(four.train, OpKind::linear, Phase::forward, kHidden) == 3 * 4);
    CHECK(count_in(four.train, OpKind::linear, Phase::backward, kHidden) == 3 * 4);
    CHECK(count_in(four.train, OpKind::linear, Phase::backward, kWidth) == 0);
  }
}

TEST_CASE("later pieces add to a weight's gradient, and a bias's is added from blocks at the end") {
  const Program program = plan_of(mlp_job(4)).train.program;
  std::map<BufferId, std::vector<Accumulate>> weights;
  size_t blocks = 0, sums = 0;
  for (const Instruction& op : program.instructions) {
    if (op.op == OpKind::linear_weight_grad && program.at(op.reads[0]).shape[0] == kRows / 4)
      weights[op.writes[0]].push_back(op.accumulate);
    if (op.op != OpKind::sum_rows) continue;
    const auto attrs = attrs_as<SumRowsAttrs>(op.attrs);
    if (attrs.block > 0) {
      ++blocks;
      CHECK(attrs.block == 64);
      CHECK(program.at(op.writes[0]).shape == Shape{2, kHidden});
    }
    if (attrs.of_blocks) {
      ++sums;
      CHECK(program.at(op.reads[0]).shape == Shape{8, kHidden});
      CHECK(op.accumulate == Accumulate::after_first_micro);
    }
  }
  CHECK(blocks == 3 * 4);
  CHECK(sums == 3);
  REQUIRE(weights.size() == 3 * 2);
  for (const auto& [gradient, modes] : weights)
    CHECK(modes == std::vector{Accumulate::after_first_micro, Accumulate::always,
                               Accumulate::always, Accumulate::always});
}

TEST_CASE("recompute makes hidden values again in pieces alone, of every layer") {
  for (const RecomputeConfig recompute :
       {RecomputeConfig{RecomputeMode::interval, 1}, RecomputeConfig{RecomputeMode::interval, 2},
        RecomputeConfig{RecomputeMode::selective, 0}}) {
    CAPTURE(static_cast<int>(recompute.mode), recompute.interval);
    Job job = mlp_job(4);
    job.recompute = recompute;
    const RankPlan four = plan_of(job);
    job.mlp_chunks = 1;
    const RankPlan whole = plan_of(job);
    CHECK(most_rows(whole.train.program, kHidden) == kRows);
    CHECK(most_rows(four.train.program, kHidden) == kRows / 4);
    CHECK(four.memory.total() < whole.memory.total());
    // With every layer computed again no first product is issued more often than by recompute itself.
    if (recompute.interval == 1)
      CHECK(count_in(four.train, OpKind::linear, Phase::backward, kHidden) ==
            4 * count_in(whole.train, OpKind::linear, Phase::backward, kHidden) + 4);
  }
}

TEST_CASE("gated MLPs and those that ranks divide come in pieces") {
  Job job = mlp_job(4);
  job.model = llama();
  for (const auto& [sequence, tensor] : {std::pair{1, 1}, {2, 1}, {1, 2}}) {
    CAPTURE(sequence, tensor);
    job.sequence_ranks = sequence;
    job.tensor_ranks = tensor;
    job.batch.train_batch = 12 / sequence / tensor;
    Job plain = job;
    plain.mlp_chunks = 1;
    const RankPlan whole = plan_of(plain), four = plan_of(job);
    CHECK(most_rows(whole.train.program, 40 / tensor) == kRows / sequence);
    CHECK(most_rows(four.train.program, 40 / tensor) == kRows / sequence / 4);
    CHECK(four.memory.total() < whole.memory.total());
    CHECK(wire_bytes(four.train) == wire_bytes(whole.train));
  }
}

TEST_CASE("MLPs in pieces go with every stage, recompute, offload and schedule") {
  for (const int stage : {0, 1, 2, 3})
    for (const RecomputeConfig recompute :
         {RecomputeConfig{}, RecomputeConfig{RecomputeMode::interval, 1},
          RecomputeConfig{RecomputeMode::selective, 0}})
      for (const OffloadTo activations : {OffloadTo::none, OffloadTo::cpu}) {
        Job job = mlp_job(4);
        job.zero_stage = stage;
        job.reduce = stage < 2 ? ReduceMode::boundary : ReduceMode::micro_batch;
        job.overlap_comm = true;
        job.recompute = recompute;
        job.offload.activations = activations;
        CAPTURE(stage, static_cast<int>(recompute.mode), static_cast<int>(activations));
        CHECK(most_rows(plan_of(job).train.program, kHidden) == kRows / 4);
      }
  for (const PipelineSchedule schedule :
       {PipelineSchedule::gpipe, PipelineSchedule::one_f_one_b, PipelineSchedule::interleaved,
        PipelineSchedule::zb_h1, PipelineSchedule::zb_v}) {
    Job job = mlp_job(4);
    job.model.set("n_layer", 4);
    job.batch = {.train_batch = 8, .micro_batch = 2, .accumulation = 4};
    job.pipeline.stages = 2;
    job.pipeline.schedule = schedule;
    job.pipeline.virtual_stages =
        schedule == PipelineSchedule::interleaved || schedule == PipelineSchedule::zb_v ? 2 : 1;
    CAPTURE(static_cast<int>(schedule));
    for (const RankPlan& stage : make_stage_plans(job, 0, fake_inputs()))
      CHECK(most_rows(stage.train.program, kHidden) == kRows / 4);
  }
}
