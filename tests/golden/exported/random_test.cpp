// Graphs that draw numbers (random_case.py): the same values however a run divides its work, and the distributions that the
// operators name.
#include <fmt/core.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>

#include "tests/golden/run_program.h"

namespace dstrain::golden {
namespace exported_random {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Trains a graph on its 8 samples.
Run train_graph(const std::string& name, const ScratchFolder& scratch, const std::string& label,
                const json& changes, const std::vector<std::string>& more) {
  Case all("exported");
  const fs::path folder = all.folder / name;
  all.data = {"--data", (folder / "data.safetensors").string()};
  all.config.merge_patch({{"train_batch_size", 8}, {"train_micro_batch_size_per_gpu", 4}});
  all.config.merge_patch(changes);
  std::vector<std::string> words{"--model", (folder / "model.pt2").string()};
  words.insert(words.end(), more.begin(), more.end());
  return train(all, all.config, scratch, label, words, Start::model);
}

std::string weights_of(const Run& run) {
  return read_bytes(run.output / "model.safetensors");
}

TEST_CASE("a graph that draws numbers has the same bits however its work is divided") {
  const ScratchFolder scratch;
  int label = 0;
  const std::vector<std::string> one{"--num_gpus", "1"}, two{"--num_gpus", "2"};
  const auto weights = [&](const json& changes, std::vector<std::string> words,
                           const std::vector<std::string>& more = {}) {
    words.insert(words.end(), more.begin(), more.end());
    return weights_of(
        train_graph("autoencoder", scratch, fmt::format("{}", ++label), changes, words));
  };
  const auto stage = [](int number) {
    return std::vector<std::string>{"--set", fmt::format("zero_optimization.stage={}", number)};
  };
  const json accumulated = {{"train_micro_batch_size_per_gpu", 2}};
  const std::string alone = weights(accumulated, one);
  CHECK(weights(accumulated, one) == alone);
  CHECK(weights(accumulated, one, {"--seed", "5"}) != alone);
  CHECK(weights(accumulated, one, {"--set", "dstrain.recompute=1"}) == alone);
  CHECK(weights(accumulated, one, {"--set", "dstrain.recompute=selective"}) == alone);
  CHECK(weights(accumulated, two, {"--pipeline_num_stages", "2"}) == alone);

  const std::string divided = weights(json::object(), two);
  for (const int number : {1, 2, 3}) CHECK(weights(json::object(), two, stage(number)) == divided);
  CHECK(weights(json::object(), two,
                {"--set", "zero_optimization.stage=3", "--set",
                 "zero_optimization.offload_param.device=cpu", "--set",
                 "zero_optimization.offload_optimizer.device=cpu", "--set",
                 "dstrain.recompute=1"}) == divided);
}

// A sum of other sizes of micro-batches, or over ranks, has other roundings: the values that are drawn must be the same.
TEST_CASE("a sample's numbers depend on no micro-batch and no rank") {
  const ScratchFolder scratch;
  const auto losses = [&](const std::string& label, int64_t micro, const char* ranks) {
    return train_graph("autoencoder", scratch, label, {{"train_micro_batch_size_per_gpu", micro}},
                       {"--num_gpus", ranks})
        .column("loss");
  };
  const std::vector<double> whole = losses("8", 8, "1");
  REQUIRE(whole.size() == 3);
  for (const auto& others : {losses("4", 4, "1"), losses("1", 1, "1"), losses("2 ranks", 4, "2"),
                             losses("2 ranks, 1", 1, "2")})
    for (size_t i = 0; i < whole.size(); ++i) CHECK(others.at(i) == Approx(whole[i]).epsilon(1e-5));
}

// Bounds are five standard deviations of means over 2^18 elements, unless they say otherwise.
void check_statistics(const json& step, const std::string& prefix) {
  const auto value = [&](const char* name) { return step.at(prefix + name).get<double>(); };
  CHECK(value("mean") == Approx(0.5).margin(0.003));
  CHECK(value("square") == Approx(1.0 / 3).margin(0.003));
  CHECK(value("neighbours") == Approx(0.25).margin(0.0025));
  CHECK(value("others") == Approx(0.25).margin(0.0025));
  CHECK(value("normal_mean") == Approx(0).margin(0.01));
  CHECK(value("normal_variance") == Approx(1).margin(0.014));
  CHECK(value("normal_fourth") == Approx(3).margin(0.1));
  CHECK(value("normal_within") == Approx(0.6827).margin(0.0046));
  CHECK(value("deviation") == Approx(0.25).margin(0.0035));
  CHECK(value("integers") == Approx(2.5).margin(0.029));
  CHECK(value("extremes") == 9);
  CHECK(value("truths") == Approx(0).margin(0.005));
  CHECK(value("truths_of_number") == Approx(0.3).margin(0.0045));
  CHECK(value("exponential") == Approx(0.5).margin(0.005));
  CHECK(value("order") == 1);
  CHECK(value("moved") == Approx(333).margin(40));  // of one permutation: 7.5
}

TEST_CASE("what a graph draws has the distributions that its operators name, also in 16 bits") {
  const ScratchFolder scratch;
  for (const bool bf16 : {false, true}) {
    const Run run = train_graph(
        "draws", scratch, bf16 ? "bf16" : "f32",
        {{"train_batch_size", 4},
         {"bf16", {{"enabled", bf16}}},
         {"dstrain", {{"steps", 3}, {"data", {{"val_fraction", 0.5}}}, {"eval_samples", 4}}}},
        {"--num_gpus", "1"});
    REQUIRE(run.steps.size() == 3);
    for (const json& step : run.steps) {
      CAPTURE(bf16, step.dump());
      if (!bf16) check_statistics(step, "");
      CHECK(step.at("mean").get<double>() == Approx(0.5).margin(0.003));
      CHECK(step.at("normal_variance").get<double>() == Approx(1).margin(0.02));
    }
    // Each step draws others, and so does each validation: of other samples, but the same ones each time.
    const std::vector<double> means = run.column("mean");
    CHECK((means[0] != means[1] && means[1] != means[2] && means[0] != means[2]));
  }
}

TEST_CASE("a validation draws, the same numbers for a sample each time") {
  const ScratchFolder scratch;
  std::vector<json> validations;
  for (const char* const micro : {"4", "2"}) {
    const Run run = train_graph(
        "draws", scratch, micro,
        {{"train_batch_size", 4},
         {"dstrain",
          {{"steps", 2},
           {"eval_interval", 1},
           {"data", {{"val_fraction", 0.5}}},
           {"eval_samples", 4}}}},
        {"--num_gpus", "1", "--set", fmt::format("train_micro_batch_size_per_gpu={}", micro)});
    std::ifstream metrics(run.output / "metrics.jsonl");
    for (std::string line; std::getline(metrics, line);)
      if (json object = json::parse(line); object.contains("val_loss"))
        validations.push_back(std::move(object));
    CHECK(run.steps.at(0).at("mean") != validations.back().at("val_mean"));
  }
  REQUIRE(validations.size() == 4);
  check_statistics(validations[0], "val_");
  for (const json& other : validations) {
    CHECK(other.at("val_mean").get<double>() ==
          Approx(validations[0].at("val_mean").get<double>()).epsilon(1e-6));
    CHECK(other.at("val_normal_fourth").get<double>() ==
          Approx(validations[0].at("val_normal_fourth").get<double>()).epsilon(1e-5));
  }
}

}  // namespace
}  // namespace exported_random
}  // namespace dstrain::golden
