// Runs whose ranks have parts of the same layers and samples, which one rank is compared with.
#pragma once

#include <fmt/core.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "runtime/comm/self_comm.h"
#include "tests/engine/stages/run_steps.h"
#include "tests/support/decoders.h"
#include "tests/support/distance.h"
#include "tests/support/models.h"

namespace dstrain {

inline constexpr int kLayerSteps = 10;

// How the ranks of a run are divided.
struct Layout {
  int stages = 1, data = 1, sequence = 1, tensor = 1;

  int ranks() const { return stages * data * sequence * tensor; }
};

inline std::string describe(const Layout& layout) {
  return fmt::format("{} stages x {} data x {} sequence x {} tensor ranks", layout.stages,
                     layout.data, layout.sequence, layout.tensor);
}

// Returns the layouts of as many ranks that divide layers or samples among at most 4 ranks.
inline std::vector<Layout> layouts_of(int ranks) {
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
inline std::vector<ModelConfig> models_of(const Layout& layout) {
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
  models.push_back(decoder("gemma2", {{"num_hidden_layers", int64_t{2}},
                                      {"num_attention_heads", heads},
                                      {"num_key_value_heads", kv_heads},
                                      {"head_dim", int64_t{6}},
                                      {"sliding_window", int64_t{5}},
                                      {"query_pre_attn_scalar", int64_t{10}},
                                      {"attn_logit_softcapping", 2.0},
                                      {"final_logit_softcapping", 3.0},
                                      {"max_position_embeddings", int64_t{12}}}));
  models.push_back(decoder("gpt_neox", {{"num_hidden_layers", int64_t{2}},
                                        {"num_attention_heads", heads},
                                        {"rope_parameters.partial_rotary_factor", 0.67},
                                        {"max_position_embeddings", int64_t{12}}}));
  return models;
}

inline Job layers_job(const ModelConfig& model, const Layout& layout, DType dtype = DType::f32) {
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

// The largest relative distances of a run's losses and norms from another's, and the largest distance of its weights: that is 0
// where a rank has none. NaN is far from everything.
struct RunDistance {
  double loss = 0, norm = 0, weights = 0;
};

inline RunDistance distance_between(const RunResult& expected, const RunResult& result) {
  RunDistance distance;
  distance.loss = largest_relative_distance(expected.loss, result.loss);
  distance.norm = largest_relative_distance(expected.norm, result.norm);
  if (!result.weights.empty())
    distance.weights = largest_distance(expected.weights, result.weights);
  return distance;
}

// Checks that losses and norms are within a relative tolerance, and weights within what ten steps make of it.
inline void check_near(const RunResult& expected, const RunResult& result, double tolerance,
                       double of_weights) {
  const RunDistance distance = distance_between(expected, result);
  CHECK(distance.loss <= tolerance);
  CHECK(distance.norm <= tolerance);
  CHECK(distance.weights < of_weights);
}

// Checks that a run of 16 bits is about as far from the run of one rank in fp32 as one rank in 16 bits is. How far that is
// depends on the model: a step can multiply the distance that the steps before it left. In the first step, and in losses and
// weights, the two runs of 16 bits are near each other, too.
inline void check_rounding(const RunResult& exact, const RunResult& rounded,
                           const RunResult& result, double of_weights) {
  const RunDistance one = distance_between(exact, rounded), mine = distance_between(exact, result);
  CHECK(mine.loss <= 3 * one.loss + 2e-4);
  CHECK(mine.norm <= 3 * one.norm + 2e-3);
  CHECK(mine.weights <= 3 * one.weights + 1e-3);
  const RunDistance apart = distance_between(rounded, result);
  CHECK(apart.loss <= 2e-2);
  CHECK(apart.weights < of_weights);
  CHECK(result.norm.front() == Approx(rounded.norm.front()).epsilon(2e-2));
}

// Returns how far weights may be apart after ten steps of Adam. The exact gradient of a key's bias is 0 in columns that are not
// rotated, and Adam makes steps of what rounding leaves of it.
inline double distance_of(const ModelConfig& model) {
  const std::string_view type = model.family().type;
  return type == "gpt2" || type == "gpt_neox" ? 1e-2 : 2e-4;
}

// Returns the same training on one rank, with the samples of all ranks.
inline Job alone_job(Job job) {
  job.batch.accumulation *= job.data_ranks();
  job.ranks = job.sequence_ranks = job.tensor_ranks = 1;
  job.pipeline = {};
  job.shards = {};
  job.quantize = {};
  job.zero_stage = 0;
  job.reduce = ReduceMode::boundary;
  return job;
}

// Runs a job on this rank alone, with the samples of all ranks.
inline RunResult alone(const Job& job, const Dataset& data) {
  SelfComm self;
  return run_steps(alone_job(job), data, self, kLayerSteps);
}

// The same in fp32.
inline RunResult alone_in_fp32(Job job, const Dataset& data) {
  job.dtype = job.wire_dtype = DType::f32;
  return alone(job, data);
}

}  // namespace dstrain
