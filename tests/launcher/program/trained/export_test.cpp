// dstrain export: a run's weights in other programs' files, and what it refuses.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "tests/launcher/support/run_folder.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kGpt2 = R"({"model_type": "gpt2", "n_layer": 2, "n_embd": 16, "n_head": 2,
  "n_positions": 8, "vocab_size": 300})";

// A folder with token ids and a small GPT-2.
struct ExportFolder : RunFolder {
  ExportFolder() {
    std::string bytes;
    for (int i = 0; i < 400; ++i) {
      const int id = i * i % 300;
      bytes += static_cast<char>(id % 256);
      bytes += static_cast<char>(id / 256);
    }
    write("t.bin", bytes.substr(0, 2 * 300));
    write("val.bin", bytes.substr(2 * 300));
    write("gpt2.json", kGpt2);
  }

  // Returns what a command with this exit status wrote.
  std::string said(const std::string& words, int status = 0) const {
    return output_of(std::string(DSTRAIN_PROGRAM) + " " + words, status);
  }
  void train_on_ids(const std::string& output, const std::string& options) const {
    said("--config c.json --device cpu --data t.bin --overwrite --output " + output +
         " --set dstrain.model.vocab_size=300 " + options);
  }
  json eval(const std::string& options) const {
    return json::parse(said("eval --json --data val.bin " + options + " 2>err"));
  }
  bool has(const std::string& name) const { return fs::exists(root / name); }
  bool same(const std::string& a, const std::string& b, const std::string& name) const {
    CAPTURE(a, b, name);
    CHECK(has(a + "/" + name));
    return read(a + "/" + name) == read(b + "/" + name);
  }
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("a run on one of transformers' models is exported as it wrote itself, byte for byte") {
  const ExportFolder folder;
  const std::string model = "--model gpt2.json ";
  folder.train_on_ids("g", model + "--save_interval 4");
  folder.write("g/generation_config.json", "{\"eos_token_id\": 7}\n");
  CHECK(contains(folder.said("export g --format hf"), "g/export/hf: 28 tensors, "));
  folder.said("export g/checkpoints/step_4 --format hf");
  for (const std::string output : {"g/export/hf", "g/export/hf_step_4"})
    for (const std::string name : {"model.safetensors", "config.json", "generation_config.json"})
      CHECK(folder.same(output, "g", name));
  CHECK_FALSE(folder.has("g/export/hf/vocab.json"));
  // Another dtype, and several files.
  folder.train_on_ids("g16", model + "--set dstrain.save_dtype=bf16");
  folder.said("export g/checkpoints/step_4/ --format hf --dtype bf16 --output e16");
  for (const std::string name : {"model.safetensors", "config.json"})
    CHECK(folder.same("e16", "g16", name));
  folder.train_on_ids("parts", model + "--set dstrain.max_shard_size=9000 --save_interval 4");
  folder.said("export parts/checkpoints/step_4 --format hf --output e");
  CHECK_FALSE(folder.has("e/model.safetensors"));
  int files = 0;
  for (const auto& entry : fs::directory_iterator(folder.root / "e")) {
    CHECK(folder.same("e", "parts", entry.path().filename().string()));
    ++files;
  }
  CHECK(files > 3);
  folder.said("export parts --format safetensors --output one");
  folder.said("export g/checkpoints/step_4 --format safetensors --output one_too");
  CHECK(folder.same("one", "one_too", "model.safetensors"));
  CHECK(folder.same("one", "g", "model.safetensors"));
  // What is rounded already does not become exact.
  CHECK(contains(folder.said("export g16 --format safetensors"), "rounded to 16 bits"));
}

TEST_CASE("a GPT-lite is exported as a GPT-2 that computes the same") {
  const ExportFolder folder;
  for (const std::string others :
       {"activation=gelu --set dstrain.model.tied_head=true", "dropout=0.2"}) {
    fs::remove_all(folder.root / "out");
    folder.train_on_ids("out", "--set dstrain.model.qkv_bias=true --set dstrain.model." + others);
    folder.said("export out --format hf");
    const json run = folder.eval("--run out"), model = folder.eval("--model out/export/hf");
    CHECK(run == model);
    CHECK(run["tokens"] == 99);
    const json config = json::parse(folder.read("out/export/hf/config.json"));
    CHECK(config["architectures"] == json::array({"GPT2LMHeadModel"}));
    CHECK(config["bos_token_id"].is_null());
    CHECK(config["tie_word_embeddings"] == contains(others, "tied_head"));
    CHECK(config["activation_function"] == (contains(others, "gelu") ? "gelu_new" : "relu"));
    CHECK(config["attn_pdrop"] == (contains(others, "0.2") ? 0.2 : 0.1));
    CHECK(config["embd_pdrop"] == 0);
    // It trains on, and comes out as it came in.
    folder.said(
        "--config c.json --device cpu --data t.bin --model out/export/hf --steps 0 --output on "
        "--overwrite");
    for (const std::string name : {"model.safetensors", "config.json"})
      CHECK(folder.same("out/export/hf", "on", name));
  }
  folder.train_on_ids("plain", "");
  const std::string refused = only_error(folder.said("export plain --format hf", 1));
  CHECK(contains(refused, "dstrain.model.qkv_bias: it is false"));
  CHECK(contains(refused, "--format safetensors"));
  CHECK_FALSE(folder.has("plain/export"));
}

TEST_CASE("a checkpoint of any number of ranks has the weights that the run wrote") {
  const ExportFolder folder;
  for (const std::string options :
       {"--num_gpus 1", "--num_gpus 2 --set zero_optimization.stage=3",
        "--num_gpus 2 --pipeline_num_stages 2 --set bf16.enabled=true"}) {
    folder.train_on_ids("r",
                        options + " --overwrite --save_interval 2 --set dstrain.model.n_layer=2");
    folder.said("export r/checkpoints/step_4 --format safetensors --overwrite --output e");
    CHECK(folder.same("e", "r", "model.safetensors"));
    folder.said("export r --format safetensors --overwrite --output e");
    CHECK(folder.same("e", "r", "model.safetensors"));
    folder.said("export r/checkpoints/step_2 --format safetensors --overwrite --output e");
    CHECK(folder.read("e/model.safetensors") != folder.read("r/model.safetensors"));
  }
  // No text is needed.
  folder.write("b.json", R"({"type": "benchmark", "n_layer": 2, "in_size": 4, "hidden_size": 5,
    "out_size": 3})");
  folder.said("--config c.json --device cpu --model b.json --output b");
  folder.said("export b --format safetensors");
  CHECK(folder.same("b/export/safetensors", "b", "model.safetensors"));
  CHECK(contains(only_error(folder.said("export b --format hf", 1)),
                 "transformers have no model that computes what a "));
}

TEST_CASE("an export replaces nothing that it was not told to, and leaves nothing half-written") {
  const ExportFolder folder;
  folder.train_on_ids("g", "--model gpt2.json --save_interval 4");
  const auto error = [&](const std::string& words) {
    return only_error(folder.said("export " + words, 1));
  };
  for (const std::string output : {"g", "g/", "./g/../g"})
    CHECK(contains(error("g --format hf --output " + output), "comes from this folder"));
  folder.train_on_ids("other", "");
  CHECK(contains(error("g --format hf --overwrite --output other"), "is that of a run"));
  CHECK(contains(error("g --format hf --overwrite --output other/metrics.jsonl"),
                 "expected a folder, and a file has its name"));
  CHECK(contains(error("g --format safetensors --output e.safetensors"), "expected a folder, in"));
  folder.said("export g --format hf --output e");
  CHECK(contains(error("g --format hf --output e"), "--overwrite replaces it"));
  folder.write("e/mine.txt", "mine");
  folder.said("export g --format hf --output e --overwrite --dtype fp16");
  CHECK(folder.read("e/mine.txt") == "mine");
  CHECK(contains(folder.read("e/config.json"), "float16"));
  // Adapters there would be added to the model.
  fs::create_directory(folder.root / "a");
  folder.write("a/adapter_config.json", "{}");
  folder.write("a/adapter_model.safetensors", "weights");
  CHECK(contains(error("g --format hf --output a"), "a model already (adapter_config.json)"));
  // The tokenizer of another model would be taken for this one's.
  for (const std::string name : {"a/tokenizer.json", "a/generation_config.json", "a/mine.txt"})
    folder.write(name, "{}");
  folder.write("g/generation_config.json", "{\"eos_token_id\": 7}\n");
  folder.said("export g --format hf --output a --overwrite");
  for (const std::string name :
       {"adapter_config.json", "adapter_model.safetensors", "tokenizer.json"})
    CHECK_FALSE(folder.has("a/" + name));
  CHECK(folder.has("a/mine.txt"));
  CHECK(folder.same("a", "g", "generation_config.json"));
  // What is there without a model stays.
  fs::create_directory(folder.root / "t");
  folder.write("t/tokenizer.json", "{}");
  folder.said("export g --format hf --output t");
  CHECK(folder.has("t/tokenizer.json"));
  CHECK(contains(error("nowhere --format hf"), "dstrain export nowhere: there is no "));
  CHECK(contains(error("g/checkpoints --format hf"), "resolved_config.json"));

  // Every value is damaged, or the file is cut short.
  const std::string part = "g/checkpoints/step_4/rank_00000.safetensors";
  const std::string whole = folder.read(part);
  uint64_t header = 0;
  std::memcpy(&header, whole.data(), sizeof(header));
  std::string damaged = whole;
  for (size_t i = sizeof(header) + header; i < damaged.size(); ++i)
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
  folder.write(part, damaged);
  CHECK(contains(error("g/checkpoints/step_4 --format safetensors --output new"), "is damaged"));
  CHECK_FALSE(folder.has("new"));
  folder.write(part, whole.substr(0, whole.size() / 2));
  CHECK(contains(error("g/checkpoints/step_4 --format hf --output new"), "rank_00000"));
  CHECK_FALSE(folder.has("new"));
  // Numbers that fp16 does not have.
  folder.train_on_ids("wide", "--steps 1 --set optimizer.type=SGD --set optimizer.params.lr=1e12");
  CHECK(
      contains(error("wide --format safetensors --dtype fp16 --output new"), "fp16 ends at 65504"));
  CHECK_FALSE(folder.has("new"));
}

TEST_CASE(
    "an export that is killed at any change of a name leaves the old model, the new one, or none") {
  const ExportFolder folder;
  // The same shapes compute something else, so that weights of one beside the configuration of the other are seen.
  std::string other = kGpt2;
  other.insert(1, R"("activation_function": "relu", )");
  folder.write("relu.json", other);
  folder.train_on_ids("g", "--model gpt2.json");
  folder.train_on_ids("s", "--model relu.json --set dstrain.max_shard_size=9000 --seed 2");
  const std::map<std::string, json> losses{{"g", folder.eval("--model g")},
                                           {"s", folder.eval("--model s")}};
  REQUIRE(losses.at("g") != losses.at("s"));
  for (const auto& [before, after] : {std::pair<std::string, std::string>{"g", "s"}, {"s", "g"}}) {
    bool killed = true;
    std::set<std::string> seen;
    for (int change = 1; killed; ++change) {
      CAPTURE(before, after, change);
      REQUIRE(change < 100);
      fs::remove_all(folder.root / "e");
      folder.said("export " + before + " --format hf --output e");
      const int status = folder
                             .start(std::string(DSTRAIN_PROGRAM) + " export " + after +
                                        " --format hf --output e --overwrite",
                                    {{"LD_PRELOAD", DSTRAIN_FAILING_DRIVE},
                                     {"DRIVE_KILL_AT", std::to_string(change)},
                                     {"ASAN_OPTIONS", "detect_leaks=0:verify_asan_link_order=0"}})
                             .wait();
      killed = status != 0;
      if (folder.has("e/config.json")) {
        const json found = folder.eval("--model e");
        REQUIRE((found == losses.at(before) || found == losses.at(after)));
        seen.insert(found == losses.at(before) ? "old" : "new");
      } else {
        CHECK(contains(only_error(folder.said("eval --json --data val.bin --model e", 1)),
                       "config.json"));
        seen.insert("none");
      }
    }
    CHECK(seen == std::set<std::string>{"old", "none", "new"});
  }
}

// Returns the most kilobytes that an export had in memory.
int64_t peak_of_export(const ExportFolder& folder, const std::string& options) {
  const std::string command = "cd " + folder.root.string() + " && exec " +
                              std::string(DSTRAIN_PROGRAM) + " export " + options + " > log";
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    ::_exit(127);
  }
  int status = 0;
  struct rusage usage {};
  REQUIRE(::wait4(child, &status, 0, &usage) == child);
  REQUIRE(status == 0);
  return usage.ru_maxrss;
}

TEST_CASE("an export never has the model in memory") {
  const ExportFolder folder;
  const std::string model =
      "--steps 0 --set dstrain.model.qkv_bias=true --set dstrain.model.n_embd=64 "
      "--set dstrain.model.vocab_size=";
  folder.train_on_ids("small", model + "300");
  folder.train_on_ids("large", model + "250000");
  constexpr int64_t kWeights = int64_t{2} * 250000 * 64 * 4 / 1024;  // kilobytes
  for (const std::string format : {"hf", "safetensors --dtype bf16"}) {
    const int64_t small = peak_of_export(folder, "small --format " + format),
                  large = peak_of_export(folder, "large --format " + format);
    CAPTURE(small, large, kWeights);
    CHECK(large - small < kWeights / 3);
  }
}

}  // namespace
}  // namespace dstrain
