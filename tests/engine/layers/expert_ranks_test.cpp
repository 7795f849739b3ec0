// Ranks that divide experts train what ranks that have all of them train, bit for bit. mpirun starts this program.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/comm/world.h"
#include "runtime/engine/run/trainer.h"
#include "tests/engine/stages/run_steps.h"
#include "tests/engine/test_rank.h"
#include "tests/support/decoders.h"
#include "tests/support/sample.h"

namespace dstrain {
namespace {

constexpr int kSteps = 3, kMicroBatches = 2;

std::vector<ModelConfig> models() {
  return {decoder("mixtral", {{"num_local_experts", int64_t{4}},
                              {"num_experts_per_tok", int64_t{2}},
                              {"num_key_value_heads", int64_t{2}},
                              {"output_router_logits", true},
                              {"router_aux_loss_coef", 0.3}}),
          decoder("qwen2_moe", {{"num_experts", int64_t{8}},
                                {"num_experts_per_tok", int64_t{3}},
                                {"num_key_value_heads", int64_t{2}},
                                {"moe_intermediate_size", int64_t{9}},
                                {"shared_expert_intermediate_size", int64_t{11}},
                                {"dense_layers", std::string("1")}}),
          // Its choices follow biases that each step changes by those of all ranks.
          decoder("deepseek_v3", {{"n_routed_experts", int64_t{8}},
                                  {"n_group", int64_t{2}},
                                  {"topk_group", int64_t{1}},
                                  {"num_experts_per_tok", int64_t{2}},
                                  {"moe_intermediate_size", int64_t{5}},
                                  {"first_k_dense_replace", int64_t{1}},
                                  {"num_key_value_heads", int64_t{0}},
                                  {"q_lora_rank", int64_t{0}},
                                  {"kv_lora_rank", int64_t{6}},
                                  {"qk_nope_head_dim", int64_t{4}},
                                  {"qk_rope_head_dim", int64_t{2}},
                                  {"v_head_dim", int64_t{5}}}),
          // Few of many experts have tokens.
          decoder("olmoe", {{"num_experts", int64_t{32}},
                            {"num_experts_per_tok", int64_t{1}},
                            {"num_key_value_heads", int64_t{2}}})};
}

// Returns a job of `ranks` data-parallel ranks, and of as many in each of `stages`.
Job experts_job(const ModelConfig& model, int ranks, int stages = 1) {
  Job job;
  job.model = model;
  job.pipeline.stages = stages;
  job.ranks = ranks;
  const int data = ranks / stages;
  job.batch = {2 * kMicroBatches * data, 2, kMicroBatches};
  job.optimizer.weight_decay = 0.1;
  job.weight_decay_exclude = {"*norm*"};
  job.gather = {.param_persistence = 0, .max_reuse_distance = 0};
  if (model.family().has_choice_bias) job.experts = {.bias_update = 0.05, .z_loss = 0.01};
  return job;
}

// Returns the numbers of expert ranks, with one rank for each group too, among which `data` ranks and 4 experts divide.
std::vector<int> degrees(int data) {
  std::vector<int> list;
  for (const int degree : {2, 4})
    if (data % degree == 0) list.push_back(degree);
  return list;
}

// Checks that the runs have the same bits. The norm is a sum of f64 values, which has another order.
void check_same(const RunResult& expected, const RunResult& result) {
  CHECK(result.loss == expected.loss);
  CHECK(result.weights == expected.weights);
  REQUIRE(result.norm.size() == expected.norm.size());
  for (size_t i = 0; i < expected.norm.size(); ++i)
    CHECK(result.norm[i] == Approx(expected.norm[i]).epsilon(1e-9));
}

// Trains `job` with all experts on each rank and with them divided in each way.
void check_degrees(Job job, const Dataset& data, Communicator& world) {
  job.expert_ranks = 1;
  const RunResult expected = run_steps(job, data, world, kSteps);
  for (const int degree : degrees(job.data_ranks())) {
    job.expert_ranks = degree;
    INFO(degree << " expert ranks: " << describe(job));
    check_same(expected, run_steps(job, data, world, kSteps));
  }
}

}  // namespace

TEST_CASE("at each stage ranks that divide experts learn the same") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  Sample sample(4);
  for (const ModelConfig& model : models())
    for (const int stage : {0, 1, 2, 3})
      for (const ReduceMode reduce : {ReduceMode::boundary, ReduceMode::micro_batch})
        for (const DType dtype : {DType::f32, DType::bf16}) {
          if (!sample.takes()) continue;
          Job job = experts_job(model, world->size());
          job.zero_stage = stage;
          job.reduce = reduce;
          job.dtype = job.wire_dtype = dtype;
          job.overlap_comm = stage % 2 == 1;
          check_degrees(job, data, *world);
        }
}

TEST_CASE("with recompute, offload, clipping and pieces of a loss, too") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  for (const ModelConfig& model : models()) {
    Job job = experts_job(model, world->size());
    job.zero_stage = 3;
    job.reduce = ReduceMode::micro_batch;
    job.recompute = {RecomputeMode::interval, 1};
    job.loss_chunks = 2;
    check_degrees(job, data, *world);
    job.recompute = {RecomputeMode::selective, 0};
    job.offload = {.optimizer = OffloadTo::cpu, .parameters = OffloadTo::cpu};
    check_degrees(job, data, *world);
    job.offload = {.activations = OffloadTo::cpu};
    job.zero_stage = 1;
    job.wire_dtype = DType::bf16;
    check_degrees(job, data, *world);
  }
}

TEST_CASE("in pipelines, too") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  if (world->size() < 4) return;
  for (const ModelConfig& model : models())
    for (const PipelineSchedule schedule :
         {PipelineSchedule::one_f_one_b, PipelineSchedule::zb_h1, PipelineSchedule::interleaved}) {
      Job job = experts_job(model, world->size(), 2);
      job.pipeline.schedule = schedule;
      if (schedule == PipelineSchedule::interleaved) job.pipeline.virtual_stages = 2;
      job.zero_stage = 1;
      check_degrees(job, data, *world);
    }
}

TEST_CASE("a run goes on from a checkpoint with its experts divided otherwise") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  const auto mine = static_cast<double>(::getpid());
  std::vector<double> all(static_cast<size_t>(world->size()));
  world->gather_values({&mine, 1}, all);
  const std::string directory =
      fmt::format("{}/dstrain_experts_{}", std::filesystem::temp_directory_path().string(),
                  static_cast<int64_t>(all.front()));
  std::vector<int> all_degrees{1};
  for (const int degree : degrees(world->size())) all_degrees.push_back(degree);
  for (const int stage : {0, 3})
    for (const int from : all_degrees) {
      Job job = experts_job(models().front(), world->size());
      job.zero_stage = stage;
      job.reduce = usual_reduce(stage);
      job.expert_ranks = from;
      Job begun = job;
      begun.output = directory;
      begun.overwrite = true;
      begun.steps = 2;
      begun.eval_samples = 2;
      RunContext context{implementations()};
      context.comm = world.get();
      context.threads = 1;
      {
        Trainer trainer(begun, data, context);
        trainer.load();
        trainer.run();
      }
      world->barrier();
      job.expert_ranks = 1;
      const RunResult whole = run_steps(job, data, *world, 4);
      for (const int to : all_degrees) {
        job.expert_ranks = to;
        job.resume = directory;
        INFO("from " << from << " to " << to << " expert ranks at stage " << stage);
        const RunResult rest = run_steps(job, data, *world, 2);
        CHECK(rest.weights == whole.weights);
        CHECK(rest.loss == std::vector<double>(whole.loss.begin() + 2, whole.loss.end()));
        job.resume.clear();
      }
      world->barrier();
    }
  if (world->rank() == 0) std::filesystem::remove_all(directory);
}

}  // namespace dstrain
