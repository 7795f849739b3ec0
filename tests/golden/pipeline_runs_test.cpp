// A pipeline is the run that the same job is without one: its losses, norms, validation losses, weights and
// checkpoints.
#include <fmt/core.h>

#include <catch2/catch.hpp>

#include "tests/golden/run_program.h"

using namespace dstrain::golden;
using nlohmann::json;

namespace {

constexpr int kHalf = 3;  // steps before the checkpoint, and after it

// How a run is divided: stages x data-parallel ranks.
struct Division {
  int stages, data_ranks;
  const char* schedule = "1f1b";
  const char* partition = "best";
};

json config_of(const Case& golden, Division d, int steps, const std::string& dtype) {
  json config = golden.config;
  if (dtype != "fp32") config[dtype] = {{"enabled", true}};
  config["train_batch_size"] = 16;
  config["gradient_accumulation_steps"] = 4;
  config.erase("train_micro_batch_size_per_gpu");
  config["zero_optimization"] = {{"stage", d.data_ranks > 1 ? 2 : 0}};
  config["pipeline"] = {{"stages", d.stages}, {"schedule", d.schedule}, {"partition", d.partition}};
  config["dstrain"]["steps"] = steps;
  config["dstrain"]["eval_interval"] = 2;
  return config;
}

class PipelineRuns {
 public:
  explicit PipelineRuns(std::string dtype, const std::string& model = "gptlite")
      : golden_(model), dtype_(std::move(dtype)) {}

  Run initial(Division d) { return run(d, 0, {}); }
  Run whole(Division d) { return run(d, 2 * kHalf, {}); }
  Run first_half(Division d) { return run(d, kHalf, {"--save_interval", std::to_string(kHalf)}); }
  Run second_half(Division d, const Run& first) {
    return run(d, 2 * kHalf, {"--resume", first.output.string()});
  }

 private:
  Run run(Division d, int steps, std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--num_gpus", std::to_string(d.stages * d.data_ranks)});
    return train(golden_, config_of(golden_, d, steps, dtype_), scratch_,
                 "run" + std::to_string(runs_++), arguments);
  }

  const Case golden_;
  const ScratchFolder scratch_;
  std::string dtype_;
  int runs_ = 0;
};

void check_equal(const Run& run, const Run& expected) {
  for (const char* column : {"loss", "grad_norm", "lr"})
    CHECK(run.column(column) == expected.column(column));
  CHECK(read_bytes(run.output / "model.safetensors") ==
        read_bytes(expected.output / "model.safetensors"));
}

}  // namespace

TEST_CASE("a pipeline's losses, norms and weights are those of the run without one") {
  const std::string dtype = GENERATE("fp32", "bf16");
  CAPTURE(dtype);
  PipelineRuns runs(dtype);
  for (const int data_ranks : {1, 2}) {
    const Run expected = runs.whole({1, data_ranks});
    REQUIRE(expected.steps.size() == 2 * kHalf);
    for (const Division& d : {Division{2, data_ranks}, Division{3, data_ranks, "GPipe"},
                              Division{4, 1}, Division{2, data_ranks, "Interleaved1F1B"},
                              Division{2, 1, "zb-h1"}, Division{2, data_ranks, "ZBVZeroBubble"}}) {
      if (d.data_ranks != data_ranks) continue;
      INFO(d.stages << " stages x " << d.data_ranks << " ranks, " << d.schedule);
      check_equal(runs.whole(d), expected);
    }
  }
}

TEST_CASE("a checkpoint resumes with any number of stages") {
  PipelineRuns runs("bf16");
  const Run expected = runs.second_half({1, 1}, runs.first_half({1, 1}));
  REQUIRE(expected.steps.size() == kHalf);
  for (const int before : {1, 2, 4}) {
    const Run first = runs.first_half({before, 1});
    for (const int after : {1, 2, 3}) {
      if (before == 1 && after == 1) continue;
      INFO("saved with " << before << " stages, resumed with " << after);
      check_equal(runs.second_half({after, 1}, first), expected);
    }
  }
  const Run first = runs.first_half({2, 1, "zb-v"});
  check_equal(runs.second_half({2, 1, "interleaved"}, first), expected);
  check_equal(runs.second_half({1, 1}, first), expected);
}

TEST_CASE("a pipeline that cuts a block between attention and MLP is the run without one") {
  const std::string dtype = GENERATE("fp32", "bf16");
  CAPTURE(dtype);
  PipelineRuns runs(dtype);
  for (const int data_ranks : {1, 2}) {
    const Division alone{1, data_ranks}, cut{3, data_ranks, "1f1b", "time"},
        other_cut{3, 1, "1f1b", "memory"};
    check_equal(runs.whole(cut), runs.whole(alone));
    const Run saved_alone = runs.first_half(alone), saved_cut = runs.first_half(cut);
    CHECK(read_bytes(saved_cut.output.parent_path() / "log.txt")
              .find("stage 0: layers 0 to 1.attn,") != std::string::npos);
    const Run expected = runs.second_half(alone, saved_alone);
    REQUIRE(expected.steps.size() == kHalf);
    check_equal(runs.second_half(alone, saved_cut), expected);
    check_equal(runs.second_half(cut, saved_alone), expected);
    if (data_ranks == 1) check_equal(runs.second_half(other_cut, saved_cut), expected);
  }
}

TEST_CASE("GPT-2's head shares the embedding's weights with the first stage") {
  PipelineRuns runs("fp32", "gpt2");
  const auto weights = [](const Run& run) { return read_bytes(run.output / "model.safetensors"); };
  CHECK(weights(runs.initial({1, 1})) == weights(runs.initial({3, 1})));
  const Run alone = runs.whole({1, 2});
  const Run pipeline = runs.whole({2, 2});
  REQUIRE(pipeline.steps.size() == 2 * kHalf);
  for (const char* column : {"loss", "grad_norm"})
    for (size_t i = 0; i < alone.steps.size(); ++i) {
      CAPTURE(column, i);
      CHECK(pipeline.column(column)[i] == Approx(alone.column(column)[i]).epsilon(1e-6));
    }
  // Checkpoints have the weights once, for any number of stages. All pipelines have the same bits.
  const Run expected = runs.second_half({2, 1}, runs.first_half({2, 1}));
  REQUIRE(expected.steps.size() == kHalf);
  check_equal(runs.second_half({3, 1}, runs.first_half({4, 1})), expected);
  check_equal(runs.second_half({1, 1}, runs.first_half({3, 1})),
              runs.second_half({1, 1}, runs.first_half({2, 1})));
}
