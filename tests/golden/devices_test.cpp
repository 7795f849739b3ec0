// Compares runs of the program on the emulated device, with the GPU kernels, with runs on the CPU.
#include <fmt/core.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/golden/run_program.h"

namespace dstrain::golden {
namespace {

using nlohmann::json;

constexpr double kTolerance = 1e-5;
constexpr int kSteps = 6;

std::vector<std::string> on(const std::string& device, int ranks) {
  return {"--device", device, "--num_gpus", std::to_string(ranks)};
}

json config_of(const Case& golden, int stage, int ranks) {
  json config = golden.config;
  config["gradient_accumulation_steps"] = 2;
  config["train_batch_size"] = 8;
  config["train_micro_batch_size_per_gpu"] = 4 / ranks;
  config["zero_optimization"] = {{"stage", stage},
                                 {"stage3_max_reuse_distance", 0},
                                 {"stage3_param_persistence_threshold", 0}};
  config["dstrain"]["steps"] = kSteps;
  config["dstrain"]["eval_interval"] = 3;
  config["dstrain"]["eval_samples"] = 7;
  if (golden.name != "benchmark") config["dstrain"]["model"]["dropout"] = 0.1;
  return config;
}

void check_close(const Run& a, const Run& b, const std::string& key) {
  const std::vector<double> x = a.column(key), y = b.column(key);
  REQUIRE(x.size() == y.size());
  REQUIRE_FALSE(x.empty());
  for (size_t i = 0; i < x.size(); ++i) {
    CAPTURE(key, i);
    CHECK(std::abs(x[i] - y[i]) <= kTolerance * std::abs(y[i]));
  }
}

TEST_CASE("the emulated device trains as the CPU does, at every stage") {
  const Case golden(GENERATE("gptlite", "benchmark"));
  const int ranks = GENERATE(1, 2), stage = GENERATE(0, 1, 2, 3);
  if (ranks == 1 && stage > 0) return;  // one rank shards nothing
  CAPTURE(golden.name, ranks, stage);
  const ScratchFolder scratch;
  const json config = config_of(golden, stage, ranks);
  const Run cpu = train(golden, config, scratch, "cpu", on("cpu", ranks));
  const Run emulated = train(golden, config, scratch, "emulated", on("emulated", ranks));
  check_close(emulated, cpu, "loss");
  check_close(emulated, cpu, "grad_norm");
  const Weights expected = read_weights(cpu.output / "model.safetensors");
  const Weights weights = read_weights(emulated.output / "model.safetensors");
  REQUIRE(weights.size() == expected.size());
  for (const auto& [name, values] : expected) {
    double difference = 0, norm = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      difference += std::pow(static_cast<double>(weights.at(name)[i] - values[i]), 2);
      norm += std::pow(static_cast<double>(values[i]), 2);
    }
    CAPTURE(name);
    CHECK(std::sqrt(difference) <= 1e-3 * std::sqrt(norm));
  }
}

TEST_CASE("the emulated device trains with Muon as the CPU does") {
  const Case golden("gptlite");
  const int stage = GENERATE(0, 3);
  const ScratchFolder scratch;
  json config = config_of(golden, stage, 2);
  config["optimizer"] = {{"type", "Muon"}, {"params", {{"muon_lr", 0.01}, {"adam_lr", 0.002}}}};
  config.erase("scheduler");
  const Run cpu = train(golden, config, scratch, "cpu", on("cpu", 2));
  const Run emulated = train(golden, config, scratch, "emulated", on("emulated", 2));
  check_close(emulated, cpu, "loss");
  check_close(emulated, cpu, "grad_norm");
}

TEST_CASE("a checkpoint goes on on another device, stage and number of ranks") {
  const Case golden("gptlite");
  const auto [from, to] = GENERATE(table<std::string, std::string>(
      {{"emulated", "cpu"}, {"cpu", "emulated"}, {"emulated", "emulated"}}));
  CAPTURE(from, to);
  const ScratchFolder scratch;
  const Run whole = train(golden, config_of(golden, 0, 1), scratch, "whole", on("cpu", 1));
  json half = config_of(golden, 1, 2);
  half["dstrain"]["steps"] = kSteps / 2;
  half["dstrain"]["save_interval"] = kSteps / 2;
  const Run saved = train(golden, half, scratch, "saved", on(from, 2));
  std::vector<std::string> arguments = on(to, 2);
  arguments.insert(arguments.end(), {"--resume", saved.output.string()});
  const Run resumed = train(golden, config_of(golden, 3, 2), scratch, "resumed", arguments);
  const std::vector<double> loss = resumed.column("loss"), expected = whole.column("loss");
  REQUIRE(loss.size() == kSteps / 2);
  for (size_t i = 0; i < loss.size(); ++i)
    CHECK(std::abs(loss[i] - expected[i + kSteps / 2]) <= kTolerance * expected[i + kSteps / 2]);
}

}  // namespace
}  // namespace dstrain::golden
