// Compares graphs that torch.export has written with what PyTorch computes in fp64 (make_exported.py): every operator that
// becomes a program, and two decoders that train in every way that ranks can divide the work.
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

constexpr double kTolerance = 2e-6;

const json& cases() {
  static const json all = read_json(Case("exported").folder / "cases.json").at("cases");
  return all;
}

// Trains the graph of a case on its batch.
Run train_graph(const std::string& name, const ScratchFolder& scratch, const std::string& label,
                const json& changes = json::object(),
                const std::vector<std::string>& more = {"--num_gpus", "1"}) {
  Case all("exported");
  const fs::path folder = all.folder / name;
  all.data = {"--data", (folder / "data.safetensors").string()};
  all.config.merge_patch(changes);
  std::vector<std::string> words{"--model", (folder / "model.pt2").string()};
  words.insert(words.end(), more.begin(), more.end());
  return train(all, all.config, scratch, label, words, Start::model);
}

// One plain SGD step, which moves each weight by lr * gradient.
json plain_step(double lr) {
  return {
      {"optimizer",
       {{"type", "SGD"},
        {"params", {{"lr", lr}, {"betas", nullptr}, {"eps", nullptr}, {"weight_decay", nullptr}}}}},
      {"dstrain", {{"steps", 1}}}};
}

std::string weights_of(const Run& run) {
  return read_bytes(run.output / "model.safetensors");
}

}  // namespace

TEST_CASE("exported graphs train as PyTorch does") {
  for (const auto& [name, golden] : cases().items()) {
    CAPTURE(name);
    const ScratchFolder scratch;
    const Run run = train_graph(name, scratch, "adamw");
    CHECK(largest_relative_distance(golden.at("losses").get<std::vector<double>>(),
                                    run.column("loss")) <= kTolerance);
  }
}

// With lr = 2^20 the step is so much larger than the weights that their difference in fp32 keeps the gradient to 2^-24.
TEST_CASE("every gradient of an exported graph is PyTorch's") {
  constexpr double lr = 1 << 20;
  for (const auto& [name, golden] : cases().items()) {
    const ScratchFolder scratch;
    const Weights before = read_weights(train_graph(name, scratch, "none", plain_step(0)).output /
                                        "model.safetensors");
    const Weights after = read_weights(train_graph(name, scratch, "sgd", plain_step(lr)).output /
                                       "model.safetensors");
    const Weights gradients =
        read_weights(Case("exported").folder / name / "gradients.safetensors");
    REQUIRE(after.size() >= gradients.size());  // buffers have none
    double largest = 0;
    for (const auto& [tensor, expected] : gradients)
      for (const float g : expected) raise_to(largest, std::abs(static_cast<double>(g)));
    for (const auto& [tensor, expected] : gradients) {
      CAPTURE(name, tensor);
      REQUIRE(after.count(tensor) == 1);
      const std::vector<float>&w0 = before.at(tensor), &w1 = after.at(tensor);
      REQUIRE(w1.size() == expected.size());
      double worst = 0;
      for (size_t i = 0; i < expected.size(); ++i) {
        const double gradient = (static_cast<double>(w0[i]) - static_cast<double>(w1[i])) / lr;
        raise_to(worst, std::abs(gradient - static_cast<double>(expected[i])));
      }
      CHECK(worst / largest <= kTolerance);
    }
  }
}

TEST_CASE("an exported graph has the same bits however its work is divided") {
  const json accumulated = {{"train_micro_batch_size_per_gpu", 1}, {"gradient_clipping", 1.0}};
  const std::vector<std::string> one{"--num_gpus", "1"}, two{"--num_gpus", "2"};
  const auto with = [](std::vector<std::string> words, const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const ScratchFolder scratch;
  int label = 0;
  const auto weights = [&](const json& changes, const std::vector<std::string>& words) {
    return weights_of(train_graph("gated", scratch, fmt::format("{}", ++label), changes, words));
  };
  const std::string alone = weights(accumulated, one);
  CHECK(weights(accumulated, with(one, {"--set", "dstrain.recompute=1"})) == alone);
  CHECK(weights(accumulated,
                with(one, {"--set", "zero_optimization.offload_optimizer.device=cpu"})) == alone);
  CHECK(weights(accumulated, with(two, {"--pipeline_num_stages", "2"})) == alone);

  const json divided = {{"train_micro_batch_size_per_gpu", 2}, {"gradient_clipping", 1.0}};
  const std::string plain = weights(divided, two);
  for (const char* const stage : {"1", "2", "3"})
    CHECK(weights(divided,
                  with(two, {"--set", fmt::format("zero_optimization.stage={}", stage)})) == plain);
  CHECK(weights(divided, with(two, {"--set", "zero_optimization.stage=3", "--set",
                                    "zero_optimization.offload_param.device=cpu", "--set",
                                    "zero_optimization.offload_optimizer.device=cpu"})) == plain);
  CHECK(weights(divided, {"--num_gpus", "4", "--pipeline_num_stages", "2"}) == plain);
}

// Blocks hand on two tensors and read three that were there before the first of them: `pairs`.
TEST_CASE("several tensors cross the cuts of a pipeline with the bits of one rank") {
  const ScratchFolder scratch;
  int label = 0;
  const auto weights = [&](int micro, std::vector<std::string> words,
                           const std::vector<std::string>& sets = {}) {
    for (const std::string& set : sets) words.insert(words.end(), {"--set", set});
    return weights_of(train_graph(
        "pairs", scratch, fmt::format("{}", ++label),
        {{"train_micro_batch_size_per_gpu", micro}, {"gradient_clipping", 1.0}}, words));
  };
  const auto stages = [](const char* ranks, const char* of) {
    return std::vector<std::string>{"--num_gpus", ranks, "--pipeline_num_stages", of};
  };
  const std::string alone = weights(1, {"--num_gpus", "1"});
  CHECK(weights(1, stages("2", "2")) == alone);
  CHECK(weights(1, stages("3", "3")) == alone);
  CHECK(weights(1, stages("4", "4")) == alone);
  CHECK(weights(1, stages("4", "4"), {"dstrain.recompute=1"}) == alone);
  CHECK(weights(1, stages("4", "4"), {"dstrain.recompute=selective"}) == alone);
  for (const char* const schedule : {"gpipe", "interleaved", "zb-h1", "zb-v"})
    CHECK(weights(1, stages("2", "2"), {fmt::format("pipeline.schedule={}", schedule)}) == alone);
  const std::string divided = weights(2, {"--num_gpus", "2"});
  CHECK(weights(2, stages("4", "2")) == divided);
  CHECK(weights(2, stages("4", "2"), {"zero_optimization.stage=1"}) == divided);
}

TEST_CASE("convolutions and batch norms have the same bits at every stage") {
  const ScratchFolder scratch;
  int label = 0;
  const auto weights = [&](const std::vector<std::string>& words) {
    return weights_of(train_graph("residual", scratch, fmt::format("{}", ++label),
                                  {{"train_micro_batch_size_per_gpu", 2}}, words));
  };
  const std::string plain = weights({"--num_gpus", "2"});
  CHECK(weights({"--num_gpus", "2", "--set", "zero_optimization.stage=3"}) == plain);
  CHECK(weights({"--num_gpus", "2", "--set", "zero_optimization.stage=2", "--set",
                 "zero_optimization.offload_optimizer.device=cpu", "--set",
                 "dstrain.recompute=1"}) == plain);
}

TEST_CASE("a graph whose inputs have different first dimensions has one sample") {
  const ScratchFolder scratch;
  const Run run = train_graph("nodes", scratch, "whole",
                              {{"train_batch_size", 1},
                               {"train_micro_batch_size_per_gpu", 1},
                               {"dstrain", {{"data", {{"whole", {"x", "edges", "y"}}}}}}});
  const json golden = read_json(Case("exported").folder / "cases.json").at("whole");
  CHECK(largest_relative_distance(golden.get<std::vector<double>>(), run.column("loss")) <=
        kTolerance);
}

TEST_CASE("an exported graph trains in 16 bits") {
  for (const auto& [name, golden] : cases().items()) {
    CAPTURE(name);
    const ScratchFolder scratch;
    const Run run = train_graph(name, scratch, "bf16", {{"bf16", {{"enabled", true}}}});
    CHECK(largest_relative_distance(golden.at("losses").get<std::vector<double>>(),
                                    run.column("loss")) <= 2e-2);
  }
}

TEST_CASE("a run of an exported graph is resumed with the same bits") {
  const ScratchFolder scratch;
  const json saved = {{"dstrain", {{"save_last", true}, {"steps", 2}}}};
  const Run whole = train_graph("tokens", scratch, "whole");
  const Run half = train_graph("tokens", scratch, "half", saved);
  const Run rest = train_graph("tokens", scratch, "rest", json::object(),
                               {"--num_gpus", "1", "--resume", half.output.string()});
  CHECK(weights_of(rest) == weights_of(whole));
}

TEST_CASE(
    "an exported graph trains on a token file, and its validation does not depend on batches") {
  const ScratchFolder scratch;
  std::ofstream file(scratch.path() / "tokens.bin", std::ios::binary);
  uint32_t state = 1;
  for (int i = 0; i < 400; ++i) {
    state = state * 1664525u + 1013904223u;
    const auto id = static_cast<uint16_t>((state >> 16) % 40);
    file.write(reinterpret_cast<const char*>(&id), sizeof id);
  }
  file.close();
  Case all("exported");
  all.data = {"--data", (scratch.path() / "tokens.bin").string()};
  all.config["dstrain"]["data"] = {{"format", "bin"}, {"val_fraction", 0.2}};
  all.config["dstrain"]["eval_samples"] = 8;
  for (const char* const name : {"tokens", "gated"}) {
    const std::string model = (all.folder / name / "model.pt2").string();
    std::vector<double> validations;
    for (const char* const samples : {"4", "2", "1"}) {
      CAPTURE(name, samples);
      const Run run = train(all, all.config, scratch, fmt::format("{}{}", name, samples),
                            {"--model", model, "--num_gpus", "1", "--set",
                             fmt::format("train_micro_batch_size_per_gpu={}", samples), "--set",
                             "optimizer.params.lr=0"},
                            Start::model);
      REQUIRE(run.validations().size() == 1);
      validations.push_back(run.validations()[0]);
    }
    CHECK(validations[1] == Approx(validations[0]).epsilon(1e-6));
    CHECK(validations[2] == Approx(validations[0]).epsilon(1e-6));
  }
}

TEST_CASE("what an exported graph does not have is refused with a reason") {
  const ScratchFolder scratch;
  const auto refused = [&](const std::string& name, const std::vector<std::string>& words) {
    try {
      train_graph(name, scratch, "refused", json::object(), words);
    } catch (const std::exception& e) {
      return std::string(e.what());
    }
    return std::string("was not refused");
  };
  using Catch::Contains;
  const std::vector<std::string> one{"--num_gpus", "1"};
  CHECK_THAT(refused("unknown", one),
             Contains("aten.erfinv.default, 1 node") && Contains("model.py:12") &&
                 Contains("y = (x * w).erfinv()") && Contains("aten.special_i0.default"));
  CHECK_THAT(refused("gated", {"--num_gpus", "2", "--tensor_parallel_size", "2"}),
             Contains("are not divided among ranks"));
  CHECK_THAT(refused("gated", {"--num_gpus", "1", "--set", "dstrain.label_smoothing=0.1"}),
             Contains("its loss is its own"));
  CHECK_THAT(refused("gated", {"--num_gpus", "1", "--set", "dstrain.lora={\"r\": 2}"}),
             Contains("adapters are for the built-in models"));
  CHECK_THAT(refused("gated", {"--num_gpus", "1", "--init_weights", "random"}),
             Contains("does not say how its weights begin"));
}

}  // namespace dstrain::golden
