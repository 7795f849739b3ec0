// A run that divides layers and samples in one way goes on in any other. mpirun starts this program, on 4 ranks.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/comm/self_comm.h"
#include "runtime/comm/world.h"
#include "runtime/engine/run/trainer.h"
#include "tests/engine/stages/run_steps.h"
#include "tests/engine/test_rank.h"
#include "tests/support/decoders.h"
#include "tests/support/distance.h"
#include "tests/support/models.h"
#include "tests/support/skip.h"

namespace dstrain {
namespace {

constexpr int kRanks = 4, kStepsBefore = 2, kStepsAfter = 2;

// How the ranks of a run are divided, and the ZeRO stage.
struct Layout {
  int stages = 1, data = 1, sequence = 1, tensor = 1;
  int zero_stage = 0;

  int ranks() const { return stages * data * sequence * tensor; }
  bool operator==(const Layout&) const = default;
};

std::string describe(const Layout& layout) {
  return fmt::format("{} stages x {} data x {} sequence x {} tensor ranks, ZeRO stage {}",
                     layout.stages, layout.data, layout.sequence, layout.tensor, layout.zero_stage);
}

std::vector<Layout> all_layouts() {
  std::vector<Layout> list;
  for (const int zero_stage : {0, 3})
    for (const Layout& layout :
         {Layout{}, Layout{.data = 4}, Layout{.data = 2, .tensor = 2},
          Layout{.sequence = 2, .tensor = 2}, Layout{.stages = 2, .tensor = 2},
          Layout{.stages = 2, .sequence = 2}, Layout{.tensor = 4}}) {
      list.push_back(layout);
      list.back().zero_stage = zero_stage;
    }
  return list;
}

// Their widths and vocabularies do not divide evenly among the ranks.
std::vector<ModelConfig> all_models() {
  return {GptLite{.n_layer = 2,
                  .n_embd = 24,
                  .n_head = 4,
                  .block_size = 12,
                  .qkv_bias = true,
                  .tied_head = true,
                  .vocab_size = 13},
          decoder("llama", {{"num_hidden_layers", int64_t{2}},
                            {"num_attention_heads", int64_t{4}},
                            {"num_key_value_heads", int64_t{4}},
                            {"attention_bias", true},
                            {"max_position_embeddings", int64_t{12}}})};
}

Job job_of(const ModelConfig& model, const Layout& layout) {
  Job job;
  job.model = model;
  job.ranks = layout.ranks();
  job.pipeline.stages = layout.stages;
  job.sequence_ranks = layout.sequence;
  job.tensor_ranks = layout.tensor;
  job.batch = {8, 2, 4 / layout.data};
  job.zero_stage = layout.zero_stage;
  job.gather = {.param_persistence = 0, .max_reuse_distance = 0};
  job.optimizer.weight_decay = 0.1;
  job.weight_decay_exclude = {"*norm*", "*.bias"};
  return job;
}

// Trains the first steps and leaves a checkpoint in `directory`. Collective.
void save(Job job, const Dataset& data, Communicator& comm, const std::string& directory) {
  job.output = directory;
  job.overwrite = true;
  job.steps = kStepsBefore;
  job.eval_samples = 2;
  RunContext context{implementations()};
  context.comm = &comm;
  context.threads = 1;
  Trainer trainer(job, data, context);
  trainer.load();
  trainer.run();
}

// Returns the further steps of the run that left a checkpoint. Collective.
RunResult go_on(Job job, const Dataset& data, Communicator& comm, const std::string& directory) {
  job.resume = directory;
  return run_steps(job, data, comm, kStepsAfter);
}

// Returns the same steps of a run that was never interrupted. Collective.
RunResult uninterrupted(const Job& job, const Dataset& data, Communicator& comm) {
  RunResult result = run_steps(job, data, comm, kStepsBefore + kStepsAfter);
  const auto drop = [](auto& values) {
    values.erase(values.begin(), values.begin() + kStepsBefore);
  };
  drop(result.loss);
  drop(result.norm);
  drop(result.skipped);
  drop(result.scale);
  return result;
}

// Checks losses and norms within 1e-5 of their size, and weights within what few steps make of that.
void check_near(const RunResult& expected, const RunResult& result) {
  REQUIRE(result.loss.size() == expected.loss.size());
  for (size_t i = 0; i < expected.loss.size(); ++i) {
    CHECK(result.loss[i] == Approx(expected.loss[i]).epsilon(1e-5));
    CHECK(result.norm[i] == Approx(expected.norm[i]).epsilon(1e-5));
  }
  CHECK(largest_distance(expected.weights, result.weights) < 2e-4);
}

// Returns a directory of all ranks' that none has made yet. Collective.
std::string common_directory(Communicator& comm) {
  const auto mine = static_cast<double>(::getpid());
  std::vector<double> all(static_cast<size_t>(comm.size()));
  comm.gather_values({&mine, 1}, all);
  return fmt::format("{}/dstrain_layouts_{}", std::filesystem::temp_directory_path().string(),
                     static_cast<int64_t>(all.front()));
}

}  // namespace

TEST_CASE("a run goes on from the checkpoint of any layout") {
  const auto world = make_communicator();
  SKIP_UNLESS(world->size() == kRanks, "it needs 4 ranks");
  SelfComm self;
  const RandomDataset data(13, 0.1);
  const std::string directory = common_directory(*world);
  const bool first = world->rank() == 0;
  // A layout of one rank is trained by the first one; the others wait for it.
  const auto takes_part = [first](const Layout& layout) { return layout.ranks() > 1 || first; };
  const auto comm_of = [&](const Layout& layout) -> Communicator& {
    return layout.ranks() > 1 ? *world : self;
  };
  for (const ModelConfig& model : all_models())
    for (const Layout& from : all_layouts()) {
      if (takes_part(from)) save(job_of(model, from), data, comm_of(from), directory);
      world->barrier();
      for (const Layout& to : all_layouts()) {
        // From one stage to the other, and from each layout to itself.
        if (to != from && to.zero_stage == from.zero_stage) continue;
        if (takes_part(to)) {
          const Job job = job_of(model, to);
          INFO(describe(job) << ": from " << describe(from) << " to " << describe(to));
          const RunResult expected = uninterrupted(job, data, comm_of(to)),
                          result = go_on(job, data, comm_of(to), directory);
          if (to == from)
            CHECK(difference(expected, result, comm_of(to)) == "");
          else
            check_near(expected, result);
        }
        world->barrier();
      }
    }
  if (first) std::filesystem::remove_all(directory);
}

}  // namespace dstrain
