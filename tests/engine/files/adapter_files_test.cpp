#include "runtime/engine/files/adapter_files.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>

#include "runtime/core/error.h"
#include "runtime/engine/files/end_weights.h"
#include "runtime/storage/weights/weight_files.h"
#include "tests/support/models.h"
#include "tests/support/temp_dir.h"

using namespace dstrain;
using Catch::Contains;

namespace {

Job adapted_job(const LoraConfig& lora, bool merge, const std::string& output) {
  Job job;
  job.model = GptLite{.n_layer = 1, .n_embd = 4, .n_head = 1, .block_size = 4, .vocab_size = 7};
  job.model.set_fine_tuning({.groups = {}, .lora = lora});
  job.adapters.merge = merge;
  job.output = output;
  return job;
}

StateRegister some_weights() {
  return {{.name = "a.qkv.weight", .slot = "master", .global_shape = {3, 2}},
          {.name = "a.qkv.lora_A.weight", .slot = "master", .global_shape = {1, 2}},
          {.name = "a.qkv.lora_B.weight", .slot = "master", .global_shape = {3, 1}},
          {.name = "a.qkv.bias", .slot = "master", .global_shape = {3}}};
}

Tensor tensor_of(std::vector<float>& values) {
  return {values.data(), {static_cast<int64_t>(values.size())}, DType::f32};
}

// Returns the values of a tensor of a file, which must be F32 and have this shape.
std::vector<float> read(const std::string& path, const std::string& name,
                        const std::vector<int64_t>& shape) {
  const WeightFiles files(path);
  const std::optional<WeightFiles::Found> found = files.find(name);
  REQUIRE(found);
  CHECK(found->tensor->shape == shape);
  const std::string bytes = bytes_of_file(path);
  const int64_t size = found->tensor->end - found->tensor->begin;
  std::vector<float> values(static_cast<size_t>(size) / sizeof(float));
  std::memcpy(values.data(), bytes.data() + found->tensor->begin, static_cast<size_t>(size));
  return values;
}

std::string problem(const std::string& config, const LoraConfig& lora = {.r = 4, .alpha = 8}) {
  const TempDir folder;
  folder.write("adapter_config.json", config);
  try {
    check_adapter(folder.path(), adapted_job(lora, false, "").model);
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("adapters have the names of PEFT's files, and the base has its own") {
  const AdaptedWeights split = split_adapters(some_weights(), {.groups = {}, .lora = LoraConfig{}});
  REQUIRE(split.base.size() == 2);
  REQUIRE(split.adapters.size() == 2);
  CHECK(split.base[1].name == "a.qkv.bias");
  CHECK(split.adapters[0].parts.front().tensor == "base_model.model.a.qkv.lora_A.weight");
  CHECK(adapted_modules(some_weights()) == std::vector<std::string>{"a.qkv"});
}

TEST_CASE("modules that are trained as a whole are of the base, and of PEFT's files") {
  StateRegister weights = some_weights();
  weights.push_back({.name = "head.weight",
                     .slot = "master",
                     .global_shape = {2, 3},
                     .parts = {{.tensor = "out.weight", .transposed = true}}});
  const FineTuning tuning{.groups = {}, .lora = LoraConfig{.saved = {"head"}}};
  const AdaptedWeights split = split_adapters(weights, tuning);
  REQUIRE(split.base.size() == 3);
  REQUIRE(split.adapters.size() == 3);
  CHECK(split.base[2].parts.front().tensor == "out.weight");
  CHECK(split.adapters[2].parts.front().tensor == "base_model.model.out.weight");
  CHECK(split.adapters[2].parts.front().transposed);
}

TEST_CASE("adapter_config.json says what PEFT needs to open the adapter") {
  const Job job = adapted_job(
      {.r = 4, .alpha = 6.5, .dropout = 0.1, .rslora = true, .all_linear = true}, false, "");
  StateRegister weights;
  for (const char* const name : {"h.0.attn.c_attn.lora_A.weight", "h.0.mlp.c_fc.lora_A.weight",
                                 "h.1.attn.c_attn.lora_A.weight", "wte.weight"})
    weights.push_back({.name = name, .slot = "master", .global_shape = {1, 2}});
  const auto config = nlohmann::json::parse(adapter_config_json(job, weights));
  CHECK(config["modules_to_save"].is_null());
  CHECK(config["peft_type"] == "LORA");
  CHECK(config["task_type"] == "CAUSAL_LM");
  CHECK(config["r"] == 4);
  CHECK(config["lora_alpha"] == 6.5);
  CHECK(config["lora_dropout"] == 0.1);
  CHECK(config["use_rslora"] == true);
  CHECK(config["fan_in_fan_out"] == false);
  CHECK(config["target_modules"] == nlohmann::json{"c_attn", "c_fc"});
  CHECK(config["base_model_name_or_path"].is_null());
}

TEST_CASE(
    "adapter_config.json names the modules that are trained as a whole, and that a table is the "
    "head") {
  Job job = adapted_job({.targets = {"q_proj"}, .saved = {"embed_tokens", "lm_head"}}, false, "");
  job.model = ModelConfig(*model_registry().find("llama"));
  job.model.set("tie_word_embeddings", true);
  job.model.set_fine_tuning(
      {.groups = {},
       .lora = LoraConfig{.targets = {"q_proj"}, .saved = {"embed_tokens", "lm_head"}}});
  const StateRegister weights{
      {.name = "model.embed_tokens.weight", .slot = "master", .global_shape = {1, 2}}};
  const auto config = nlohmann::json::parse(adapter_config_json(job, weights));
  CHECK(config["modules_to_save"] == nlohmann::json::array({"embed_tokens", "lm_head"}));
  CHECK(config["ensure_weight_tying"] == true);
}

TEST_CASE("an adapter to begin with has the configuration's rank and scale, and no parts beside") {
  CHECK(problem(R"({"peft_type": "LORA", "r": 4, "lora_alpha": 8})").empty());
  CHECK(problem(R"({"r": 4, "lora_alpha": 4, "use_rslora": true})").empty());
  CHECK_THAT(problem(R"({"r": 3, "lora_alpha": 8})"), Contains("set dstrain.lora.r to 3"));
  CHECK_THAT(problem(R"({"r": 4, "lora_alpha": 16})"),
             Contains("set dstrain.lora.alpha to 16 and dstrain.lora.rslora to false"));
  CHECK_THAT(problem(R"({"peft_type": "IA3"})"), Contains("peft_type IA3"));
  CHECK_THAT(problem(R"({"r": 4, "lora_alpha": 8, "use_dora": true})"), Contains("DoRA"));
  CHECK_THAT(problem(R"({"r": 4, "lora_alpha": 8, "bias": "all"})"), Contains("bias all"));
  CHECK_THAT(problem(R"({"r": 4, "lora_alpha": 8, "rank_pattern": {"q": 2}})"),
             Contains("rank_pattern"));
  CHECK_THAT(problem(R"({"r": 4, "lora_alpha": 8, "modules_to_save": ["lm_head"]})"),
             Contains("has modules_to_save [\"lm_head\"], and the configuration has []"));
  const LoraConfig whole{.r = 4, .alpha = 8, .saved = {"embed_tokens"}};
  CHECK_THAT(problem(R"({"r": 4, "lora_alpha": 8})", whole),
             Contains("set dstrain.lora.modules_to_save to the adapter's"));
  CHECK(problem(R"({"r": 4, "modules_to_save": ["model.embed_tokens"]})", whole).empty());
  CHECK(problem(R"({"r": 4, "lora_alpha": 8, "init_lora_weights": "gaussian"})").empty());
  CHECK(problem(R"({"r": 4, "lora_alpha": 8, "init_lora_weights": true})").empty());
  CHECK_THAT(problem(R"({"r": 4, "lora_alpha": 8, "init_lora_weights": "pissa"})"),
             Contains("init_lora_weights \"pissa\": the adapter belongs to another base"));
  CHECK_THAT(problem(R"({"r": 4, "lora_alpha": 8, "alora_invocation_tokens": [1]})"),
             Contains("alora_invocation_tokens"));
  CHECK_THAT(problem(R"({"r": "four"})"), Contains("r has a value of another type"));
  CHECK_THAT(problem("[1]"), Contains("expected a JSON object"));
  CHECK_THAT(problem("{"), Contains("expected a JSON object"));
}

TEST_CASE("a run's end writes adapters alone, or the model with them as well") {
  for (const bool merge : {false, true}) {
    const TempDir folder;
    const Job job = adapted_job({.r = 1, .alpha = 2}, merge, folder.path());
    StateRegister weights = some_weights();
    EndWeights files(job, weights, {});
    std::vector<float> a{10, 20}, b{1, 2, 3}, weight{1, 2, 3, 4, 5, 6}, bias{7, 8, 9};
    files.write("a.qkv.lora_A.weight", 0, tensor_of(a));
    files.write("a.qkv.lora_B.weight", 0, tensor_of(b));
    std::vector<float> first(weight.begin(), weight.begin() + 3),
        rest(weight.begin() + 3, weight.end());
    files.write("a.qkv.weight", 3, tensor_of(rest));
    files.write("a.qkv.weight", 0, tensor_of(first));
    files.write("a.qkv.bias", 0, tensor_of(bias));
    files.finish();
    // Beside a model transformers would add the adapters to it once more.
    const std::string place = merge ? folder / "adapter" : folder.path();
    const std::string adapter = place + "/adapter_model.safetensors";
    CHECK(read(adapter, "base_model.model.a.qkv.lora_A.weight", {1, 2}) == a);
    CHECK(read(adapter, "base_model.model.a.qkv.lora_B.weight", {3, 1}) == b);
    CHECK(adapter_output(job) == place);
    CHECK(adapter_folder(folder.path()) == place);
    CHECK(std::filesystem::exists(place + "/adapter_config.json"));
    CHECK(std::filesystem::exists(folder / "adapter_config.json") != merge);
    const std::string model = folder / "model.safetensors";
    CHECK(std::filesystem::exists(model) == merge);
    if (!merge) continue;
    // W + 2 B A
    CHECK(read(model, "a.qkv.weight", {3, 2}) == std::vector<float>{21, 42, 43, 84, 65, 126});
    CHECK(read(model, "a.qkv.bias", {3}) == bias);
  }
}

TEST_CASE("a run removes an earlier one's weights when it begins, but not those it begins with") {
  const TempDir folder;
  Job job = adapted_job({.r = 1, .alpha = 2}, false, folder / "out");
  const std::vector<std::string> names = {"adapter_config.json", "adapter_model.safetensors",
                                          "model.safetensors", "adapter/adapter_config.json",
                                          "adapter/adapter_model.safetensors"};
  std::filesystem::create_directories(folder / "out/adapter");
  for (const std::string& name : names) folder.write("out/" + name, "{}");
  folder.write("out/metrics.jsonl", "");
  const auto left = [&] {
    std::vector<std::string> there;
    for (const std::string& name : names)
      if (std::filesystem::exists(folder / "out/" + name)) there.push_back(name);
    return there;
  };
  SECTION("none") {
    remove_earlier_weights(job);
    CHECK(left().empty());
  }
  SECTION("its own weights, by a link") {
    std::filesystem::create_directory_symlink(folder / "out", folder / "link");
    job.init_weights = folder / "link/model.safetensors";
    remove_earlier_weights(job);
    CHECK(left() == std::vector<std::string>{"model.safetensors"});
  }
  SECTION("its own adapters") {
    job.adapters.init = folder / "out/adapter";
    remove_earlier_weights(job);
    CHECK(left() == std::vector<std::string>{names[3], names[4]});
  }
  CHECK(std::filesystem::exists(folder / "out/metrics.jsonl"));
}

TEST_CASE("adapters that an earlier run has left are removed, wherever they are") {
  const TempDir folder;
  const std::string merged = folder / "adapter";
  const auto lay_out = [&] {
    std::filesystem::create_directory(merged);
    for (const std::string name : {"adapter_config.json", "adapter_model.safetensors"}) {
      folder.write(name, "{}");
      folder.write("adapter/" + name, "{}");
    }
  };
  const auto count = [](const std::string& path) {
    return std::distance(std::filesystem::directory_iterator(path), {});
  };
  lay_out();
  CHECK(adapter_folder(folder.path()) == folder.path());
  remove_adapters(folder.path(), folder.path());
  CHECK(count(folder.path()) == 2);
  CHECK_FALSE(std::filesystem::exists(merged));
  lay_out();
  remove_adapters(folder.path(), merged);
  CHECK(count(folder.path()) == 1);
  CHECK(count(merged) == 2);
  CHECK(adapter_folder(folder.path()) == merged);
  folder.write("adapter/mine.txt", "mine");
  remove_adapters(folder.path());
  CHECK(count(merged) == 1);
  CHECK(adapter_folder(folder.path()) == folder.path());
}
