#include "launcher/hosts/start/run_questions.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <set>

#include "launcher/supervise/restart.h"
#include "models/registry.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

using Words = std::vector<std::string>;

// A model from a folder of Hugging Face with token ids to train on.
struct ModelFolder {
  ModelFolder() {
    std::filesystem::create_directories(dir / "model");
    dir.write("model/config.json", R"({"model_type": "llama", "hidden_size": 16,
        "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2,
        "vocab_size": 1000, "max_position_embeddings": 64})");
    dir.write("model/model.safetensors", "weights");
    dir.write("tokens.bin", std::string(400, '\1'));
    dir.write("c.json", R"({"train_batch_size": 4, "dstrain": {"data": {"seq_len": 8}}})");
  }
  Words words(const Words& more) const {
    Words all = {"--config", dir / "c.json", "--data",   dir / "tokens.bin",
                 "--model",  dir / "model",  "--output", dir / "out"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  // Returns the names of the files that hosts compare at a start with these words.
  std::set<std::string> compared(const Words& words) const {
    const auto [config, input] =
        read_host_input(words, 1, model_registry(), RunsWhere::nowhere, CacheUse::read);
    std::set<std::string> names;
    for (const auto& file : input_files(input, config))
      names.insert(std::filesystem::path(file["path"].get<std::string>()).filename());
    return names;
  }
  TempDir dir;
};

TEST_CASE("hosts compare the weights that a start begins with, and at a restart none") {
  const ModelFolder run;
  const std::set<std::string> rest = {"c.json", "tokens.bin", "config.json"};
  const auto with = [&](const std::string& file) {
    std::set<std::string> all = rest;
    all.insert(file);
    return all;
  };
  const auto is_compared = [&](const Words& more, const std::string& file) {
    const Words words = run.words(more);
    CHECK(run.compared(words) == with(file));
    CHECK(run.compared(words_resuming(words, run.dir / "out")) == rest);
  };
  SECTION("the model's") {
    is_compared({}, "model.safetensors");
  }
  SECTION("those of another file") {
    is_compared({"--init_weights", run.dir.write("other.safetensors", "")}, "other.safetensors");
    is_compared({"--init_weights=" + run.dir / "other.safetensors"}, "other.safetensors");
  }
  SECTION("those of adapters") {
    std::filesystem::create_directory(run.dir / "adapter");
    run.dir.write("adapter/adapter_model.safetensors", "weights");
    const Words lora = {"--set", "dstrain.lora.r=4", "--init_weights", "random"};
    CHECK(run.compared(run.words(lora)) == rest);
    Words begun = lora;
    begun.insert(begun.end(), {"--set", "dstrain.lora.init=" + run.dir / "adapter"});
    is_compared(begun, "adapter_model.safetensors");
  }
}

}  // namespace
}  // namespace dstrain
