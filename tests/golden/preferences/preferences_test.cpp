// Compares DPO, SimPO, ORPO, KTO and rewards with their definitions in fp64 (make_preferences.py): losses, norms and metrics of steps, with
// references that the initial weights give; at every stage, on several ranks and in a pipeline.
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <numbers>

#include "tests/golden/run_program.h"

namespace dstrain::golden {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr double kTolerance = 1e-5;
// The tolerance of losses before the first update, which rounding alone changes.
constexpr double kFirstTolerance = 1e-6;

const Case& preferences() {
  static const Case golden("preferences");
  return golden;
}

const json& cases() {
  static const json all = read_json(preferences().folder / "cases.json").at("cases");
  return all;
}

const json& case_named(const std::string& name) {
  for (const json& golden : cases())
    if (golden.at("name") == name) return golden;
  throw std::runtime_error("there is no case " + name);
}

// Makes the folder of a case's model: its config.json, its weights and a tokenizer.
fs::path model_folder(const json& golden, const ScratchFolder& scratch) {
  const fs::path folder = scratch.path() / "model";
  fs::create_directories(folder);
  std::ofstream(folder / "config.json") << golden.at("config").dump(2) << "\n";
  const fs::path weights = preferences().folder.parent_path() / "families" /
                           golden.at("weights").get<std::string>() / "model.safetensors";
  const bool scored = golden.at("objective").at("type") == "reward";
  const auto replace = fs::copy_options::overwrite_existing;
  fs::copy_file(weights, folder / (scored ? "base.safetensors" : "model.safetensors"), replace);
  if (scored) {
    fs::copy_file(preferences().folder / "score.safetensors", folder / "score.safetensors",
                  replace);
    fs::copy_file(preferences().folder / "reward_index.json",
                  folder / "model.safetensors.index.json", replace);
  }
  for (const char* const file : {"tokenizer.json", "tokenizer_config.json"})
    fs::copy_file(preferences().folder / file, folder / file, replace);
  return folder;
}

Run train_case(const json& golden, const ScratchFolder& scratch, const std::string& label,
               std::vector<std::string> words, const json& changes = json::object()) {
  Case all = preferences();
  const bool rated = golden.at("objective").at("type") == "kto";
  all.data = {"--data", (all.folder / (rated ? "rated.jsonl" : "pairs.jsonl")).string()};
  json config = all.config;
  config["train_micro_batch_size_per_gpu"] = golden.at("micro_batch");
  config["dstrain"]["objective"] = golden.at("objective");
  config["dstrain"]["eval_samples"] = 4;
  config["dstrain"]["data"]["val_path"] =
      (all.folder / (rated ? "rated_validation.jsonl" : "validation.jsonl")).string();
  config.merge_patch(changes);
  words.insert(words.end(), {"--model", model_folder(golden, scratch).string()});
  return train(all, config, scratch, label, words, Start::model);
}

}  // namespace

TEST_CASE("objectives of answers have the losses, norms and metrics of their definitions") {
  for (const json& golden : cases()) {
    const auto name = golden.at("name").get<std::string>();
    CAPTURE(name);
    const ScratchFolder scratch;
    const Run run = train_case(golden, scratch, "run", {"--num_gpus", "1"});
    REQUIRE(run.steps.size() == golden.at("steps").size());
    CHECK(run.column("loss")[0] ==
          Approx(golden.at("steps")[0].at("loss").get<double>()).epsilon(kFirstTolerance));
    CHECK(largest_difference(run, golden.at("steps"), "loss") <= kTolerance);
    CHECK(largest_difference(run, golden.at("steps"), "grad_norm") <= kTolerance);
    CHECK(run.validations().back() ==
          Approx(golden.at("validation").get<double>()).epsilon(kTolerance));
    for (size_t i = 0; i < run.steps.size(); ++i)
      for (const auto& [metric, value] : golden.at("steps")[i].at("metrics").items()) {
        CAPTURE(i, metric);
        // Rewards are differences of log-probabilities, of which rounding leaves an absolute error.
        CHECK(run.steps[i].at(metric).get<double>() ==
              Approx(value.get<double>()).epsilon(kTolerance).margin(kTolerance));
      }
  }
}

TEST_CASE("the first loss of DPO is the logarithm of 2") {
  const ScratchFolder scratch;
  const Run run = train_case(case_named("dpo"), scratch, "run", {"--num_gpus", "2"});
  CHECK(run.column("loss")[0] == Approx(std::numbers::ln2).epsilon(1e-7));
  CHECK(run.steps[0].at("rewards/margins") == 0);
}

TEST_CASE(
    "answers train with the same bits at every stage, offloaded, recomputed and in a pipeline") {
  const json& golden = case_named(GENERATE("dpo", "kto", "reward"));
  const ScratchFolder scratch;
  const std::vector<std::string> ranks{"--num_gpus", "2"};
  const auto weights_with = [&](const std::string& label, std::vector<std::string> words,
                                const json& changes) {
    words.insert(words.begin(), ranks.begin(), ranks.end());
    return read_bytes(train_case(golden, scratch, label, words, changes).output /
                      "model.safetensors");
  };
  const std::string expected = weights_with("stage0", {}, {{"zero_optimization", {{"stage", 0}}}});
  for (const int stage : {1, 2, 3}) {
    CAPTURE(stage);
    const json at_stage{{"zero_optimization", {{"stage", stage}}},
                        {"dstrain", {{"reduce", "boundary"}}}};
    CHECK(weights_with("stage" + std::to_string(stage), {}, at_stage) == expected);
  }
  const json offloaded{{"zero_optimization",
                        {{"stage", 3},
                         {"offload_optimizer", {{"device", "cpu"}}},
                         {"offload_param", {{"device", "cpu"}}}}},
                       {"activation_checkpointing", {{"number_checkpoints", 1}}},
                       {"dstrain", {{"reduce", "boundary"}}}};
  CHECK(weights_with("offloaded", {}, offloaded) == expected);
  const Run pipeline =
      train_case(golden, scratch, "pipeline", {"--num_gpus", "2"}, {{"pipeline", {{"stages", 2}}}});
  const Run one = train_case(golden, scratch, "one", {"--num_gpus", "1"});
  CHECK(read_bytes(pipeline.output / "model.safetensors") ==
        read_bytes(one.output / "model.safetensors"));
  for (const auto& [metric, value] : golden.at("steps")[0].at("metrics").items())
    CHECK(pipeline.column(metric) == one.column(metric));
}

}  // namespace dstrain::golden
