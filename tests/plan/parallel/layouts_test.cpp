// The plans of all ranks fit together in every layout of up to 16 ranks.
#include <catch2/catch.hpp>
#include <set>
#include <utility>

#include "runtime/plan/proof/verify_ranks.h"
#include "tests/plan/plans.h"
#include "tests/support/decoders.h"
#include "tests/support/sample.h"

using namespace dstrain;

namespace {

constexpr int kMostRanks = 16;

struct Layout {
  int stages = 1, data = 1, sequence = 1, tensor = 1;

  int ranks() const { return stages * data * sequence * tensor; }
};

// Returns the layouts with 1, 2 or 4 ranks along each axis.
std::vector<Layout> all_layouts() {
  std::vector<Layout> list;
  for (const int stages : {1, 2, 4})
    for (const int data : {1, 2, 4})
      for (const int sequence : {1, 2, 4})
        for (const int tensor : {1, 2, 4})
          if (const Layout layout{stages, data, sequence, tensor}; layout.ranks() <= kMostRanks)
            list.push_back(layout);
  return list;
}

// A GPT, and a Llama with 4 heads of keys and an MLP that no 2 ranks divide evenly; both have 16 heads of queries.
std::vector<std::pair<std::string, ModelConfig>> models() {
  const int64_t layers = 4, width = 32, heads = 16, tokens = 8;
  return {{"GPT-lite", GptLite{.n_layer = layers,
                               .n_embd = width,
                               .n_head = heads,
                               .block_size = tokens,
                               .vocab_size = 13}},
          {"Llama", decoder("llama", {{"num_hidden_layers", layers},
                                      {"hidden_size", width},
                                      {"num_attention_heads", heads},
                                      {"num_key_value_heads", int64_t{4}},
                                      {"max_position_embeddings", tokens}})}};
}

Job job_of_layout(const ModelConfig& model, const Layout& layout, int zero_stage) {
  Job job;
  job.model = model;
  job.pipeline.stages = layout.stages;
  job.sequence_ranks = layout.sequence;
  job.tensor_ranks = layout.tensor;
  job.ranks = layout.ranks();
  job.batch = {2 * 4 * layout.data, 2, 4};
  job.zero_stage = zero_stage;
  job.reduce = usual_reduce(zero_stage);
  job.overlap_comm = zero_stage % 2 == 1;
  job.gather = {.param_persistence = 0, .max_reuse_distance = 0};
  job.eval_interval = 1;
  return job;
}

// Checks what is proved when a run starts, with the plans of all its ranks.
void check_ranks(const Job& job) {
  std::vector<RankPlan> ranks;
  std::vector<const RankPlan*> list;
  std::vector<double> checksums;
  for (int r = 0; r < job.ranks; ++r) ranks.push_back(plan_of(job, r));
  for (const RankPlan& rank : ranks) {
    list.push_back(&rank);
    for (const double checksum : channel_checksums(rank.train)) checksums.push_back(checksum);
  }
  CHECK_NOTHROW(verify_ranks(list));
  for (const RankPlan& rank : ranks)
    CHECK_NOTHROW(compare_checksums(checksums, rank.train.place, job.pipeline.schedule));
}

}  // namespace

TEST_CASE("in all layouts of up to 16 ranks the plans of all ranks fit together") {
  const std::vector<Layout> layouts = all_layouts();
  CHECK(layouts.size() == 50);
  Sample sample(8);
  for (const auto& [name, model] : models())
    for (const Layout& layout : layouts)
      for (const int zero_stage : {0, 1, 2, 3}) {
        if (!sample.takes()) continue;
        INFO(name << " in " << layout.stages << " stages x " << layout.data << " data x "
                  << layout.sequence << " sequence x " << layout.tensor << " tensor ranks at stage "
                  << zero_stage);
        check_ranks(job_of_layout(model, layout, zero_stage));
      }
}

TEST_CASE("tensor ranks with parts of other sizes choose alike what stays gathered") {
  const ModelConfig model(
      GptLite{.n_layer = 2, .n_embd = 8, .n_head = 2, .block_size = 8, .vocab_size = 33});
  for (const int64_t threshold : {127, 128, 132, 135, 136}) {
    Job job = job_of_layout(model, {.data = 2, .tensor = 2}, 3);
    job.gather = {
        .param_persistence = threshold, .model_persistence = 178, .max_reuse_distance = 1041};
    check_ranks(job);
  }
}

TEST_CASE("a tensor group divides a pipeline as one rank does, with a copy of a tied table too") {
  for (const int64_t vocabulary : {779, 781, 800}) {
    const ModelConfig model(GptLite{.n_layer = 3,
                                    .n_embd = 16,
                                    .n_head = 2,
                                    .block_size = 16,
                                    .tied_head = true,
                                    .vocab_size = vocabulary});
    const Job job = job_of_layout(model, {.stages = 2, .data = 1, .tensor = 2}, 0);
    check_ranks(job);
    const Job alone = job_of_layout(model, {.stages = 2, .data = 1}, 0);
    const auto names = [](const RankPlan& plan) {
      std::set<std::string> list;  // of the layers of the first stage
      for (const Parameter& p : plan.train.program.parameters) list.insert(p.name);
      return list;
    };
    CHECK(names(plan_of(job, 0)) == names(plan_of(alone, 0)));
  }
}

TEST_CASE("plans of ranks that divide layers in other ways do not fit together") {
  const ModelConfig model = models().front().second;
  const Job job = job_of_layout(model, {.data = 2, .tensor = 2}, 1);
  Job other = job;
  other.gather_again = GatherAgain::on;
  std::vector<double> checksums;
  for (int r = 0; r < job.ranks; ++r)
    for (const double checksum : channel_checksums(plan_of(r == 3 ? other : job, r).train))
      checksums.push_back(checksum);
  const Place place = place_of(job, 0);
  CHECK_THROWS_WITH(compare_checksums(checksums, place, job.pipeline.schedule),
                    Catch::Contains("ranks 2 and 3 have planned different collectives"));
}
