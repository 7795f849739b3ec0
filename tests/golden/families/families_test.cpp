// Compares every family of transformers' models, adapters of them, masks and packed documents with what transformers and PEFT
// compute in fp64 (make_families.py). A wrong rotary pair, a swapped gate, a missing scale of an adapter is found here.
#include <fmt/core.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>

#include "tests/golden/run_program.h"
#include "tests/support/distance.h"

namespace dstrain::golden {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr double kTolerance = 1e-5;
constexpr double kAdapterNormTolerance = 1e-4;  // norms of few values, of which some cancel

const fs::path& families_folder() {
  static const fs::path folder = fs::path(DSTRAIN_SOURCE_DIR) / "tests/golden/families";
  return folder;
}

const json& cases() {
  static const json all = read_json(families_folder() / "cases.json").at("cases");
  return all;
}

// Makes the folder of a case's model: its config.json and its weights.
fs::path model_folder(const json& golden, const ScratchFolder& scratch) {
  const fs::path folder = scratch.path() / "model";
  fs::create_directories(folder);
  std::ofstream(folder / "config.json") << golden.at("config").dump(2) << "\n";
  fs::copy_file(families_folder() / golden.at("weights").get<std::string>() / "model.safetensors",
                folder / "model.safetensors", fs::copy_options::overwrite_existing);
  return folder;
}

// Returns what dstrain runs for a case.
json config_of(const Case& all, const json& golden) {
  json config = all.config;
  json& section = config["dstrain"];
  section.merge_patch(golden.at("dstrain"));
  if (section.contains("lora"))
    section["lora"]["init"] =
        (families_folder() / section["lora"]["init"].get<std::string>()).string();
  return config;
}

Run train_case(const json& golden, const ScratchFolder& scratch, const std::string& label,
               const json& changes, std::vector<std::string> words) {
  Case all("families");
  all.data = {"--data", (families_folder() / golden.at("data").get<std::string>()).string()};
  json config = config_of(all, golden);
  config.merge_patch(changes);
  words.insert(words.end(), {"--model", model_folder(golden, scratch).string()});
  return train(all, config, scratch, label, words, Start::model);
}

void check_steps(const json& golden, const Run& run) {
  CHECK(largest_difference(run, golden.at("steps"), "loss") <= kTolerance);
  CHECK(largest_difference(run, golden.at("steps"), "grad_norm") <=
        (golden.at("dstrain").contains("lora") ? kAdapterNormTolerance : kTolerance));
}

}  // namespace

TEST_CASE("families, adapters, masks and packed documents train as transformers and PEFT do") {
  for (const json& golden : cases()) {
    const auto name = golden.at("name").get<std::string>();
    CAPTURE(name);
    const ScratchFolder scratch;
    check_steps(golden, train_case(golden, scratch, "run", json::object(), {"--num_gpus", "1"}));
  }
}

TEST_CASE("families train so at stage 3 and with parts of layers") {
  for (const json& golden : cases()) {
    const auto name = golden.at("name").get<std::string>();
    if (name != golden.at("weights")) continue;
    CAPTURE(name);
    const ScratchFolder scratch;
    check_steps(golden, train_case(golden, scratch, "stage3", json::object(),
                                   {"--num_gpus", "2", "--set", "zero_optimization.stage=3"}));
    // Mistral's case has one key head, which two ranks cannot divide.
    if (name == "mistral" || golden.value("undivided", false)) continue;
    check_steps(golden, train_case(golden, scratch, "parts", json::object(),
                                   {"--num_gpus", "2", "--tensor_parallel_size", "2"}));
  }
}

// One plain SGD step moves each weight by lr * gradient. With lr = 2^20 the step is so much larger
// than the weights that their difference in fp32 keeps the gradient to 2^-24.
TEST_CASE("every gradient of a family's first step is transformers'") {
  constexpr double lr = 1 << 20;
  const json plain_step = {
      {"optimizer",
       {{"type", "SGD"},
        {"params", {{"lr", lr}, {"betas", nullptr}, {"eps", nullptr}, {"weight_decay", nullptr}}}}},
      {"gradient_clipping", 0.0},
      {"dstrain", {{"steps", 1}}}};
  for (const json& golden : cases()) {
    const auto name = golden.at("name").get<std::string>();
    if (name != golden.at("weights")) continue;
    const ScratchFolder scratch;
    const Run run = train_case(golden, scratch, "sgd", plain_step, {"--num_gpus", "1"});
    const Weights before = read_weights(families_folder() / name / "model.safetensors");
    const Weights gradients = read_weights(families_folder() / name / "gradients.safetensors");
    const Weights after = read_weights(run.output / "model.safetensors");
    REQUIRE(after.size() == before.size());  // with state that has no gradient
    for (const auto& [tensor, expected] : gradients) {
      CAPTURE(name, tensor);
      REQUIRE(after.count(tensor) == 1);
      const std::vector<float>&w0 = before.at(tensor), &w1 = after.at(tensor);
      REQUIRE(w1.size() == expected.size());
      double worst = 0, largest = 0;
      for (size_t i = 0; i < expected.size(); ++i) {
        const double gradient = (static_cast<double>(w0[i]) - static_cast<double>(w1[i])) / lr;
        raise_to(worst, std::abs(gradient - static_cast<double>(expected[i])));
        raise_to(largest, std::abs(static_cast<double>(expected[i])));
      }
      // An expert that no token has chosen has no gradient.
      REQUIRE((largest > 0 || tensor.find(".experts.") != std::string::npos));
      CHECK(worst <= kTolerance * largest);
    }
  }
}

}  // namespace dstrain::golden
