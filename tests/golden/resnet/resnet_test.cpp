// Compares the ResNet family with PyTorch in fp64 (make_resnet.py), and its runs with each other.
#include <fmt/core.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "tests/golden/run_program.h"
#include "tests/support/distance.h"

namespace dstrain::golden {
namespace {

using nlohmann::json;

constexpr double kTolerance = 1e-5;
constexpr const char* kCases[] = {"cifar18", "imagenet50"};

// A case of the folder, with the model's keys and its data for training and for validation.
Case resnet_case(const std::string& name) {
  Case all("resnet");
  all.folder /= name;
  const std::string data = (all.folder / "data.safetensors").string();
  all.config["dstrain"]["model"] = read_json(all.folder / "expected.json").at("model");
  all.config["dstrain"]["data"]["path"] = data;
  all.config["dstrain"]["data"]["val_path"] = data;
  return all;
}

Run train_resnet(const std::string& name, const ScratchFolder& scratch, const std::string& label,
                 const json& changes = json::object(),
                 const std::vector<std::string>& more = {"--num_gpus", "1"}) {
  const Case all = resnet_case(name);
  json config = all.config;
  config.merge_patch(changes);
  return train(all, config, scratch, label, more);
}

json plain_step(double lr) {
  return {{"optimizer", {{"params", {{"lr", lr}, {"momentum", 0}, {"weight_decay", 0}}}}},
          {"dstrain", {{"steps", 1}}}};
}

std::string weights_of(const Run& run) {
  return read_bytes(run.output / "model.safetensors");
}

}  // namespace

TEST_CASE("a ResNet trains as PyTorch's does, and validates with the running statistics") {
  for (const char* const name : kCases) {
    CAPTURE(name);
    const ScratchFolder scratch;
    const json golden = read_json(resnet_case(name).folder / "expected.json");
    const Run run = train_resnet(name, scratch, "run");
    CHECK(largest_relative_distance(golden.at("losses").get<std::vector<double>>(),
                                    run.column("loss")) <= kTolerance);
    const std::vector<double> accuracies = run.column("accuracy");
    for (size_t step = 0; step < accuracies.size(); ++step)
      CHECK(accuracies[step] == Approx(golden.at("accuracies")[step].get<double>()).margin(1e-6));
    REQUIRE(run.validations().size() == 1);
    CHECK(run.validations()[0] ==
          Approx(golden.at("validation").get<double>()).epsilon(kTolerance));
    const Weights weights = read_weights(run.output / "model.safetensors");
    for (const auto& [tensor, expected] : golden.at("statistics").items()) {
      CAPTURE(tensor);
      REQUIRE(weights.count(tensor) == 1);
      double sum = 0, largest = 0;
      for (const float value : weights.at(tensor)) {
        sum += static_cast<double>(value);
        raise_to(largest, std::abs(static_cast<double>(value)));
      }
      const double scale = expected[1].get<double>() + 1e-3;
      CHECK(std::abs(sum - expected[0].get<double>()) / scale <= kTolerance);
      CHECK(std::abs(largest - expected[1].get<double>()) / scale <= kTolerance);
    }
  }
}

// With lr = 2^20 the step is so much larger than the weights that their difference in fp32 keeps the gradient to 2^-24.
TEST_CASE("every gradient of a ResNet is PyTorch's") {
  constexpr double lr = 1 << 20;
  for (const char* const name : kCases) {
    const ScratchFolder scratch;
    const Weights before = read_weights(resnet_case(name).folder / "init.safetensors");
    const Weights after = read_weights(train_resnet(name, scratch, "sgd", plain_step(lr)).output /
                                       "model.safetensors");
    const Weights gradients = read_weights(resnet_case(name).folder / "gradients.safetensors");
    REQUIRE(after.size() == before.size());
    double largest = 0;
    for (const auto& [tensor, expected] : gradients)
      for (const float g : expected) raise_to(largest, std::abs(static_cast<double>(g)));
    for (const auto& [tensor, expected] : gradients) {
      CAPTURE(name, tensor);
      REQUIRE(after.count(tensor) == 1);
      const std::vector<float>&w0 = before.at(tensor), &w1 = after.at(tensor);
      REQUIRE(w1.size() == expected.size());
      double worst = 0;
      for (size_t i = 0; i < expected.size(); ++i)
        raise_to(worst, std::abs((static_cast<double>(w0[i]) - static_cast<double>(w1[i])) / lr -
                                 static_cast<double>(expected[i])));
      CHECK(worst / largest <= kTolerance);
    }
  }
}

TEST_CASE("a ResNet has the same bits however its work is divided") {
  const std::vector<std::string> one{"--num_gpus", "1"}, two{"--num_gpus", "2"};
  const auto with = [](std::vector<std::string> words, const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const ScratchFolder scratch;
  int label = 0;
  const auto weights = [&](int micro_batch, const std::vector<std::string>& words) {
    return weights_of(train_resnet(
        "cifar18", scratch, fmt::format("{}", ++label),
        {{"train_micro_batch_size_per_gpu", micro_batch}, {"gradient_clipping", 1.0}}, words));
  };
  const std::string alone = weights(3, one);
  CHECK(weights(3, with(one, {"--set", "dstrain.recompute=2"})) == alone);
  CHECK(weights(3, with(one, {"--set", "zero_optimization.offload_optimizer.device=cpu"})) ==
        alone);
  CHECK(weights(3, with(two, {"--pipeline_num_stages", "2"})) == alone);
  const std::string plain = weights(3, two);
  for (const char* const stage : {"1", "2", "3"})
    CHECK(weights(3, with(two, {"--set", fmt::format("zero_optimization.stage={}", stage)})) ==
          plain);
  CHECK(weights(3, with(two, {"--set", "zero_optimization.stage=3", "--set",
                              "zero_optimization.offload_param.device=cpu", "--set",
                              "zero_optimization.offload_optimizer.device=cpu"})) == plain);
}

TEST_CASE("a run of a ResNet is resumed with the same bits, and trains in 16 bits") {
  const ScratchFolder scratch;
  const Run whole = train_resnet("cifar18", scratch, "whole");
  const Run half =
      train_resnet("cifar18", scratch, "half", {{"dstrain", {{"save_last", true}, {"steps", 2}}}});
  const Run rest = train_resnet("cifar18", scratch, "rest", json::object(),
                                {"--num_gpus", "1", "--resume", half.output.string()});
  CHECK(weights_of(rest) == weights_of(whole));
  const Run bf16 = train_resnet("cifar18", scratch, "bf16", {{"bf16", {{"enabled", true}}}});
  CHECK(largest_relative_distance(whole.column("loss"), bf16.column("loss")) <= 3e-2);
}

}  // namespace dstrain::golden
