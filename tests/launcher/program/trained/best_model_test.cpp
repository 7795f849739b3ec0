// What validations decide: the weights of a run's end, the checkpoint that stays, the end of a run without a better one;
// and averages of the weights.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/launcher/support/run_folder.h"

namespace dstrain {
namespace {

using Catch::Contains;
using nlohmann::json;
namespace fs = std::filesystem;

// A learning rate with which losses rise again.
const std::string kRising =
    " --set optimizer.type=AdamW --set optimizer.params.lr=0.5 --set "
    "dstrain.eval_interval=1 "
    "--set dstrain.eval_samples=16 --set dstrain.save_last=true ";
const std::string kBest = kRising + "--set dstrain.load_best_model_at_end=true ";

// Runs the program, for 10 steps unless the options say how many. Returns what it said; it must end with `status`.
std::string run(const RunFolder& folder, const std::string& options, int status = 0) {
  const std::string steps = options.find("--steps") == std::string::npos ? "--steps 10 " : "";
  return folder.output_of(
      std::string(DSTRAIN_PROGRAM) + " --config c.json " + steps + options + " 2>&1", status);
}

// The values of a member of the validations in an output directory, in order.
std::vector<double> validations(const RunFolder& folder, const std::string& output,
                                const std::string& member = "val_loss") {
  std::vector<double> values;
  std::istringstream lines(folder.read(output + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);)
    if (const json object = json::parse(line); object.contains(member))
      values.push_back(object[member].is_null() ? 1e30 : object[member].get<double>());
  return values;
}

size_t smallest(const std::vector<double>& values) {
  return static_cast<size_t>(std::ranges::min_element(values) - values.begin()) + 1;
}

// The weights of a checkpoint, as a file.
std::string weights_of(const RunFolder& folder, const std::string& output, size_t step,
                       const std::string& options = "") {
  const std::string steps = std::to_string(step), other = output + "_step_" + steps;
  run(folder, "--resume " + output + "/checkpoints/step_" + steps + " --steps " + steps +
                  " --output " + other +
                  " --set optimizer.type=AdamW --set optimizer.params.lr=0.5 " + options);
  return folder.read(other + "/model.safetensors");
}

TEST_CASE("a run ends with the weights of its best validation, whose checkpoint stays") {
  const RunFolder folder;
  for (const std::string ranks : {"", "--num_gpus 2 "}) {
    const std::string output = ranks.empty() ? "one" : "two";
    const std::string said =
        run(folder, kBest + ranks + "--set dstrain.keep_last=1 --output " + output);
    const std::vector<double> losses = validations(folder, output);
    REQUIRE(losses.size() == 10);
    const size_t best = smallest(losses);
    REQUIRE(best < 10);
    CHECK_THAT(said, Contains("the weights are those of step " + std::to_string(best) +
                              ", of the best validation: loss "));
    CHECK(fs::exists(folder.path(output + "/checkpoints/step_" + std::to_string(best))));
    CHECK(fs::exists(folder.path(output + "/checkpoints/step_10")));
    CHECK(folder.read(output + "/model.safetensors") == weights_of(folder, output, best));
  }
}

TEST_CASE("a run that is resumed knows its best validation, and goes on from its last step") {
  const RunFolder folder;
  run(folder, kBest + "--output straight");
  const size_t best = smallest(validations(folder, "straight"));
  run(folder, kBest + "--output parts --steps " + std::to_string(best + 1));
  run(folder, kBest + "--resume parts");
  CHECK(validations(folder, "parts") == validations(folder, "straight"));
  CHECK(folder.read("parts/model.safetensors") == folder.read("straight/model.safetensors"));
}

TEST_CASE("a run ends when no validation has been better for a while") {
  const RunFolder folder;
  run(folder, kRising + "--output all");
  const std::vector<double> losses = validations(folder, "all");
  size_t end = 0;
  for (size_t step = 2; step <= losses.size() && end == 0; ++step)
    if (*std::min_element(losses.begin(), losses.begin() + static_cast<int64_t>(step) - 1) <=
        losses[step - 1])
      end = step;
  REQUIRE(end > 0);
  REQUIRE(end < 10);
  const std::string patience = "--set dstrain.early_stopping_patience=1 ";
  const std::string said = run(folder, kRising + patience + "--output ended");
  CHECK_THAT(said, Contains("no better loss in 1 validation: the run ends after step " +
                            std::to_string(end) + " of 10 (dstrain.early_stopping_patience)"));
  CHECK(validations(folder, "ended").size() == end);
  CHECK(fs::exists(folder.path("ended/checkpoints/step_" + std::to_string(end))));
}

TEST_CASE("averages of weights are validated, decide what is best, and are a model of their own") {
  const RunFolder folder;
  const std::string average = "--set dstrain.ema.decay=0.5 ";
  run(folder, kRising + average + "--output averaged");
  const std::vector<double> losses = validations(folder, "averaged", "val_ema_loss");
  REQUIRE(losses.size() == 10);
  CHECK(losses.front() == validations(folder, "averaged").front());
  CHECK(losses.back() != validations(folder, "averaged").back());
  // The average is a model whose loss is the one that was measured.
  run(folder, kRising + "--steps 0 --init_weights averaged/ema/model.safetensors --output read");
  CHECK(validations(folder, "read").back() == losses.back());
  run(folder, kRising + average + "--steps 4 --output parts");
  run(folder, kRising + average + "--resume parts");
  CHECK(folder.read("parts/ema/model.safetensors") ==
        folder.read("averaged/ema/model.safetensors"));
  run(folder, kBest + average + "--set dstrain.metric_for_best_model=eval_ema_loss --output best");
  const size_t best = smallest(losses);
  REQUIRE(best < 10);
  CHECK(folder.read("best/model.safetensors") == weights_of(folder, "best", best, average));
}

TEST_CASE(
    "averages of a model that has a folder are a folder, and go when a run without them replaces "
    "it") {
  const RunFolder folder;
  folder.write("gpt2.json", R"({"model_type": "gpt2", "n_layer": 1, "n_embd": 16, "n_head": 2,
                                "n_positions": 8, "vocab_size": 300})");
  const std::string bytes = "--data text.txt --set dstrain.data.format=byte ";
  run(folder, bytes + "--steps 4 --model gpt2.json --set dstrain.ema.decay=0.5 --output out");
  CHECK(folder.read("out/ema/config.json") == folder.read("out/config.json"));
  run(folder, bytes + "--steps 0 --model out/ema --output read");
  CHECK(validations(folder, "read").back() == validations(folder, "out", "val_ema_loss").back());
  run(folder, bytes + "--steps 4 --model gpt2.json --overwrite --output out");
  CHECK_FALSE(fs::exists(folder.path("out/ema")));
  // What somebody else has put there stays, and so does a model that a run begins with.
  run(folder,
      bytes + "--steps 4 --model gpt2.json --set dstrain.ema.decay=0.5 --overwrite --output out");
  folder.write("out/ema/notes.txt", "mine");
  run(folder, bytes + "--steps 1 --model out/ema --overwrite --output out");
  CHECK(fs::exists(folder.path("out/ema/config.json")));
  run(folder, bytes + "--steps 4 --model gpt2.json --overwrite --output out");
  CHECK_FALSE(fs::exists(folder.path("out/ema/config.json")));
  CHECK(folder.read("out/ema/notes.txt") == "mine");
}

TEST_CASE("a run with averages goes on at another ZeRO stage, and not without them") {
  const RunFolder folder;
  const std::string average = "--set dstrain.ema.decay=0.5 ",
                    ranks = "--num_gpus 2 --set dstrain.save_last=true ";
  run(folder, ranks + average + "--steps 6 --output straight");
  run(folder, ranks + average + "--steps 3 --output parts");
  CHECK_THAT(run(folder, ranks + "--steps 6 --resume parts --output without", 1),
             Contains("optimizer slots"));
  run(folder,
      ranks + average +
          "--steps 6 --resume parts --set zero_optimization.stage=2 "
          "--set dstrain.reduce=boundary --set zero_optimization.offload_optimizer.device=cpu");
  for (const std::string name : {"model.safetensors", "ema/model.safetensors"})
    CHECK(folder.read("parts/" + name) == folder.read("straight/" + name));
}

TEST_CASE("what validations cannot decide is refused before the first step") {
  const RunFolder folder;
  const auto refused = [&](const std::string& options, const std::string& error) {
    CHECK_THAT(only_error(run(folder, kBest + options + " --output refused", 1)), Contains(error));
    CHECK_FALSE(fs::exists(folder.path("refused/metrics.jsonl")));
  };
  refused("--set dstrain.metric_for_best_model=accuracy",
          "validations of this model have no accuracy: expected loss");
  refused("--set dstrain.eval_interval=0", "give dstrain.eval_interval");
  const std::string graph = DSTRAIN_SOURCE_DIR "/tests/golden/exported/pointwise/";
  folder.write("c.json", R"({"train_batch_size": 4, "train_micro_batch_size_per_gpu": 4,
                             "dstrain": {"data": {"format": "arrays", "val_fraction": 0.25}}})");
  refused("--model " + graph + "model.pt2 --data " + graph + "data.safetensors",
          "no validation sample is measured");
}

}  // namespace
}  // namespace dstrain
