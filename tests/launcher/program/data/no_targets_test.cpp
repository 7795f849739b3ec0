// Runs on conversations of which some samples have no token that counts in the loss.
#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/launcher/support/text_folder.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// A folder with lines whose second one begins with a long prompt, of which no token counts.
struct PromptFolder : TextFolder {
  PromptFolder() {
    write("m/tokenizer_config.json", R"({"eos_token": "<|end_of_text|>"})");
    const auto line = [](int prompt, int completion) {
      std::string asked, answered;
      for (int i = 0; i < prompt; ++i) asked += " the";
      for (int i = 0; i < completion; ++i) answered += " fox";
      return json{{"prompt", asked}, {"completion", answered}}.dump() + "\n";
    };
    write("lines.jsonl", line(1, 4) + line(24, 1) + line(1, 40));
  }
  std::string options(const std::string& more) const {
    return "--data lines.jsonl --set dstrain.data.val_fraction=0 --set "
           "dstrain.data.order=sequential --set train_batch_size=1 " +
           more;
  }
  std::string lines(const std::string& more = "", int status = 0) const {
    return run(options(more), status);
  }
  std::vector<json> steps() const {
    std::vector<json> list;
    std::istringstream file(read("out/metrics.jsonl"));
    for (std::string line; std::getline(file, line);)
      if (json step = json::parse(line); step.contains("skipped")) list.push_back(step);
    return list;
  }
};

TEST_CASE("a batch without a target is a skipped step, which is told of before and at the end") {
  const PromptFolder folder;
  const std::string schedule =
      "--steps 12 --set scheduler.type=WarmupLR --set scheduler.params.warmup_num_steps=10 --set "
      "scheduler.params.warmup_type=linear --set dstrain.max_skipped_steps=1 ";
  const std::string dtype = GENERATE("",
                                     "--set fp16.enabled=true --set "
                                     "fp16.initial_scale_power=4 --set fp16.loss_scale_window=1");
  const std::string text = folder.lines(schedule + dtype);
  INFO(text);
  CHECK(has(text, "of the training samples have no token that counts in the loss"));
  CHECK(has(text, "skipped (no token of the batch counts in the loss)"));
  const std::vector<json> steps = folder.steps();
  REQUIRE(steps.size() == 12);
  int skipped = 0;
  for (size_t i = 0; i + 1 < steps.size(); ++i) {
    const json &step = steps[i], &next = steps[i + 1];
    CAPTURE(step);
    CHECK(step["skipped"] == (step["tokens"] == 0));
    CHECK(step["loss"].is_null() == step["skipped"]);
    if (!step["skipped"]) continue;
    ++skipped;
    CHECK(step["lr"] == next["lr"]);
    CHECK(step["loss_scale"] == next["loss_scale"]);
  }
  CHECK(skipped >= 3);
  CHECK(steps.front()["lr"] != steps.back()["lr"]);
}

TEST_CASE("a run is resumed before, in and behind steps without targets") {
  const PromptFolder folder;
  folder.lines("--steps 12");
  const std::vector<json> steps = folder.steps();
  const std::string weights = folder.read("out/model.safetensors");
  size_t first = 0;
  while (first < steps.size() && !steps[first]["skipped"]) ++first;
  REQUIRE((first > 1 && first + 2 < steps.size()));
  for (const size_t stop : {first, first + 1, first + 2}) {
    CAPTURE(stop);
    fs::remove_all(folder.root / "out");
    folder.lines("--save_interval 1 --steps " + std::to_string(stop));
    folder.said(std::string(kProgram) + " --config t.json --model m --resume out " +
                folder.options("--steps 12"));
    CHECK(folder.read("out/model.safetensors") == weights);
  }
}

TEST_CASE("all ranks skip a batch without a target, of ranks and of pipelines") {
  const PromptFolder folder;
  const std::string batch = "--num_gpus 2 --steps 6 --set train_batch_size=2 ";
  for (const std::string layout :
       {"--set zero_optimization.stage=0", "--set zero_optimization.stage=3",
        "--pipeline_num_stages 2 --set train_micro_batch_size_per_gpu=1"}) {
    CAPTURE(layout);
    folder.lines(batch + layout);
    const std::vector<json> steps = folder.steps();
    REQUIRE(steps.size() == 6);
    int skipped = 0;
    for (const json& step : steps) skipped += step["skipped"] == true;
    CHECK((skipped > 0 && skipped < 6));
  }
}

TEST_CASE("packing leaves out what has no target, and a validation without targets has no loss") {
  const PromptFolder folder;
  for (const std::string packing : {"pack", "pad"}) {
    const std::string text = folder.lines("--set dstrain.data.packing=" + packing);
    CHECK(has(text, "1 document without a target in the first 8 tokens left out"));
    for (const json& step : folder.steps()) CHECK(step["skipped"] == false);
  }
  folder.write("val.jsonl", json{{"prompt", std::string(400, 'a')}, {"completion", " fox"}}.dump());
  folder.lines("--set dstrain.data.val_path=val.jsonl --set dstrain.eval_samples=2 --steps 1");
  CHECK(has(folder.read("out/metrics.jsonl"), "\"val_loss\":null"));
}

TEST_CASE("data without any target, and an eval of such, are an error before anything is done") {
  const PromptFolder folder;
  folder.lines("--steps 1");
  fs::copy_file(folder.root / "out/cache/lines.jsonl.bin", folder.root / "own.bin");
  folder.write("own.bin.targets", std::string(fs::file_size(folder.root / "own.bin") / 2, '\0'));
  CHECK(has(only_error(folder.run("--data own.bin", 1)),
            " of own.bin has a token that counts in the loss"));
  CHECK(has(only_error(folder.said(std::string(kProgram) + " eval --run out --data own.bin", 1)),
            "none of the tokens counts in the loss"));
}

}  // namespace
}  // namespace dstrain
