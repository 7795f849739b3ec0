// Goes on from DeepSpeed's checkpoints of each stage, with weights and optimizer's state, as DeepSpeed itself went on
// (make_deepspeed.py).
#include <fmt/core.h>

#include <catch2/catch.hpp>
#include <cstdlib>

#include "tests/golden/run_program.h"
#include "tests/support/distance.h"

namespace dstrain::golden {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr double kTolerance = 1e-5;
constexpr size_t kSaved = 3;  // steps before the checkpoint

const Case& deepspeed() {
  static const Case golden("deepspeed");
  return golden;
}

// Returns the folder of the model that is imported from the checkpoint of a stage.
fs::path imported(int stage, const ScratchFolder& scratch) {
  const fs::path model = scratch.path() / "model";
  const std::string command =
      fmt::format("'{}' import '{}' --output '{}' --optimizer_state > '{}' 2>&1",
                  DSTRAIN_BINARY_DIR "/bin/dstrain",
                  (deepspeed().folder / fmt::format("stage{}", stage)).string(), model.string(),
                  (scratch.path() / "import.log").string());
  CAPTURE(command);
  REQUIRE(std::system(command.c_str()) == 0);
  return model;
}

Run go_on(int stage, const fs::path& model, const ScratchFolder& scratch, const std::string& label,
          std::vector<std::string> words, bool with_state = true) {
  Case all = deepspeed();
  all.data = {"--data", (all.folder / "tokens.bin").string()};
  json config = all.config;
  // The checkpoints of stages 1 to 3 have a second group without decay.
  if (stage > 0) config["dstrain"]["weight_decay_exclude"] = {"*.bias", "*ln_*"};
  if (with_state) config["dstrain"]["optimizer_state"] = (model / "optimizer").string();
  words.insert(words.end(), {"--model", model.string()});
  return train(all, config, scratch, label, words, Start::model);
}

double largest_difference(const Run& run, int stage) {
  const json losses =
      read_json(deepspeed().folder / "losses.json").at(fmt::format("stage{}", stage));
  std::vector<double> right;
  for (size_t i = kSaved; i < losses.size(); ++i) right.push_back(losses[i].get<double>());
  return largest_relative_distance(right, run.column("loss"));
}

}  // namespace

TEST_CASE("a run goes on from a checkpoint of each stage of DeepSpeed's as DeepSpeed does") {
  const int stage = GENERATE(0, 1, 2, 3);
  CAPTURE(stage);
  const ScratchFolder scratch;
  const fs::path model = imported(stage, scratch);
  const Run one = go_on(stage, model, scratch, "one", {"--num_gpus", "1"});
  REQUIRE(one.steps.size() == 5);
  CHECK(one.steps.front().at("step") == 4);
  CHECK(largest_difference(one, stage) <= kTolerance);
  const Run two = go_on(stage, model, scratch, "two",
                        {"--num_gpus", "2", "--set", "zero_optimization.stage=3"});
  CHECK(largest_difference(two, stage) <= kTolerance);
}

TEST_CASE("without the optimizer's state a run is another one") {
  const ScratchFolder scratch;
  const Run run = go_on(2, imported(2, scratch), scratch, "run", {"--steps", "5"}, false);
  CHECK(run.steps.front().at("step") == 1);
  CHECK(largest_difference(run, 2) > 100 * kTolerance);
}

}  // namespace dstrain::golden
