// A model that the program does not know, from the shell's side: every command answers for it as for its own.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/launcher/support/run_folder.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kConfig = R"({
  "train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "steps_per_print": 1,
  "dstrain": {
    "model": {"type": "bigram", "depth": 2, "width": 16, "length": 8, "notes": 3},
    "data": {"path": "text.txt"}, "steps": 4, "eval_interval": 2, "eval_samples": 3
  }
})";

// With frozen layers, a registered buffer and a loss beside the first.
constexpr const char* kMixed = R"({
  "train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "steps_per_print": 1,
  "dstrain": {
    "model": {"type": "mixed", "depth": 3, "width": 16, "length": 8},
    "data": {"path": "text.txt"}, "steps": 4, "eval_interval": 2, "eval_samples": 3
  }
})";

struct OwnFolder : RunFolder {
  explicit OwnFolder(const char* config = kConfig) { write("c.json", config); }

  // Runs a command of the program, which must end with `status`; returns what it said.
  std::string said(const std::string& words, int status = 0) const {
    return output_of(std::string(DSTRAIN_OWN_PROGRAM) + " " + words, status);
  }
  // Trains into a directory; returns the weights.
  std::string weights_of(const std::string& output, const std::string& options) const {
    said("--config c.json --overwrite --output " + output + " " + options);
    return read(output + "/model.safetensors");
  }
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("own model: models, check, plan and estimate answer for it") {
  const OwnFolder folder;
  const json models = json::parse(folder.said("models --json"));
  REQUIRE(models.size() == 3);
  CHECK(models[1]["type"] == "bigram");
  CHECK(models[1]["keys"] == json{"depth", "width", "length", "notes", "vocab_size"});
  CHECK(models[1]["inputs"] ==
        json{{{"name", "ids"}, {"dtype", "i32"}, {"shape", {"length"}}},
             {{"name", "notes"}, {"dtype", "f32"}, {"shape", {"length", "notes"}}},
             {{"name", "targets"}, {"dtype", "i32"}, {"shape", {"length"}}}});
  CHECK(has(folder.said("check --config c.json"), ". This file trains.\n"));
  CHECK(has(folder.said("check --config c.json --set dstrain.model.n_head=2", 1),
            "belongs to gptlite, not to bigram"));
  CHECK(has(folder.said("--config c.json --model benchmark", 1), "gptlite, bigram, mixed"));
  CHECK(has(folder.said("--config c.json --dstrain.model.depth=3", 1),
            "--set dstrain.model.depth=3"));

  CHECK(has(folder.said("plan --config c.json"), "ids, notes, targets"));
  const json stage = json::parse(
      folder.said("plan --json --config c.json --num_gpus 2 --pipeline_num_stages 2 2>err"));
  CHECK(stage["memory"]["total"] > 0);
  CHECK(has(folder.said("estimate --config c.json"), "DeepSpeed's estimate"));
  CHECK(has(folder.said("plan --config c.json --largest --device_memory 1MB", 1),
            "a bigram with notes has no heads"));
}

TEST_CASE("own model: a run and its resumed one, in a pipeline and with state on disk") {
  const OwnFolder folder;
  const std::string weights = folder.weights_of("one", "--save_interval 2");
  REQUIRE(weights.size() > 1000);
  const std::string other = folder.said("--config c.json --output other --seed 5");
  CHECK(has(other, "; 24 made-up features beside each"));
  CHECK(has(other, ", perplexity "));
  CHECK((folder.read("other/model.safetensors") != weights));

  fs::remove_all(folder.root / "one/checkpoints/step_4");
  fs::remove(folder.root / "one/model.safetensors");
  // Weights are bytes, which a failed check should not print.
  CHECK((folder.weights_of("one", "--resume one") == weights));
  CHECK((folder.weights_of("pipeline", "--num_gpus 2 --pipeline_num_stages 2") == weights));

  fs::create_directory(folder.root / "drive");
  const std::string stage = "--num_gpus 2 --set zero_optimization.stage=3 ";
  const std::string nvme =
      "--set zero_optimization.offload_optimizer.device=nvme "
      "--set zero_optimization.offload_optimizer.nvme_path=drive "
      "--set zero_optimization.offload_param.device=nvme "
      "--set zero_optimization.offload_param.nvme_path=drive ";
  const std::string sharded = folder.weights_of("sharded", stage);
  CHECK((folder.weights_of("disk", stage + nvme + "--save_interval 2") == sharded));
  CHECK(fs::is_empty(folder.root / "drive"));
  for (const std::string& options : {stage, stage + nvme}) {
    fs::remove_all(folder.root / "disk/checkpoints/step_4");
    CHECK((folder.weights_of("disk", options + "--resume disk") == sharded));
  }

  CHECK(only_error(folder.said("generate --run one --prompt the", 1)) ==
        "one holds a bigram with notes, which reads notes beside the tokens, which a text does not "
        "have");
}

TEST_CASE("mixed model: plan and check answer for it, and a run and its resumed one are equal") {
  const OwnFolder folder(kMixed);
  CHECK(has(folder.said("check --config c.json"), ". This file trains.\n"));
  CHECK(has(folder.said("plan --config c.json"), "hidden.1.mean"));
  CHECK(json::parse(folder.said("plan --json --config c.json 2>err"))["memory"]["total"] > 0);
  CHECK(has(folder.said("estimate --config c.json"), "DeepSpeed's estimate"));
  CHECK(has(folder.said("plan --config c.json --largest --device_memory 1MB", 1),
            "a mixed model has no heads"));

  const std::string weights = folder.weights_of("one", "--save_interval 2");
  CHECK(has(weights, "\"hidden.1.mean\""));
  const std::string metrics = folder.read("one/metrics.jsonl");
  CHECK(has(metrics, "\"losses\":{\"early\":"));
  CHECK(has(metrics, "\"val_losses\":{\"early\":"));
  const auto resumed = [&](const std::string& output, const std::string& options) {
    fs::remove_all(folder.root / output / "checkpoints/step_4");
    fs::remove(folder.root / output / "model.safetensors");
    return folder.weights_of(output, options + " --resume " + output);
  };
  CHECK((resumed("one", "") == weights));
  CHECK((folder.weights_of("pipeline", "--num_gpus 2 --pipeline_num_stages 2") == weights));

  fs::create_directory(folder.root / "drive");
  const std::string stage = "--num_gpus 2 --set zero_optimization.stage=3";
  const std::string sharded = folder.weights_of("sharded", stage);
  const std::string nvme = stage +
                           " --set zero_optimization.offload_optimizer.device=nvme "
                           "--set zero_optimization.offload_optimizer.nvme_path=drive "
                           "--set zero_optimization.offload_param.device=nvme "
                           "--set zero_optimization.offload_param.nvme_path=drive";
  CHECK((folder.weights_of("disk", nvme + " --save_interval 2") == sharded));
  CHECK((resumed("disk", nvme) == sharded));
  CHECK(only_error(folder.said("generate --run one --prompt the", 1)) ==
        "one holds a mixed model, which reads notes beside the tokens, which a text does not have");
}

}  // namespace
}  // namespace dstrain
