// What a new user meets: a file without data or model, a first run, and the same command once more.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/launcher/support/run_folder.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Runs a command of the program, which must end with `status`, in the folder; returns what it said.
std::string said(const RunFolder& folder, const std::string& words, int status = 0) {
  RunningProgram program = folder.start(std::string(DSTRAIN_PROGRAM) + " " + words);
  CAPTURE(words, program.wait(60), program.text());
  CHECK(program.wait(60) == status);
  return program.text();
}

TEST_CASE("check says what a file lacks to train, and a run then asks for the same") {
  const RunFolder folder;
  folder.write("bare.json", R"({"train_batch_size": 8})");
  const std::string bare = said(folder, "check --config bare.json");
  CHECK(has(bare, "1 honoured. This file trains once --data names a file.\n"));
  CHECK(has(bare, "bare.json names no sizes of a model: the default, a GPT-lite of 12 layers of"));
  CHECK(has(said(folder, "--config bare.json", 1), "dstrain.data.path: missing"));
  CHECK(has(said(folder, "check --config c.json"), ". This file trains.\n"));
  CHECK(has(said(folder, "check --config c.json --set dstrain.data.path=no.txt"),
            ". This file trains once no.txt is there.\n"));
}

TEST_CASE("a model's name that is a type's and a folder's is the type's, with a warning") {
  const RunFolder folder;
  const std::string check = "check --config c.json --data text.txt --model gpt2";
  const std::string warning =
      "dstrain.model.type: honoured: gpt2 is the type, with fresh weights; the folder is ./gpt2\n";
  CHECK_FALSE(has(said(folder, check), warning));
  std::filesystem::create_directory(folder.root / "gpt2");
  folder.write("gpt2/config.json", R"({"model_type": "gpt2", "n_layer": 1})");
  CHECK(has(said(folder, check), warning));
  CHECK_FALSE(has(said(folder, "check --config c.json --data text.txt --model ./gpt2"), warning));
}

TEST_CASE("models lists the models with their keys and inputs") {
  const RunFolder folder;
  const json models = json::parse(said(folder, "models --json"));
  REQUIRE(models.size() == 18);
  CHECK(models[0]["type"] == "gptlite");
  CHECK(models[0]["keys"] == json{"n_layer", "n_embd", "n_head", "block_size", "dropout",
                                  "activation", "qkv_bias", "tied_head", "vocab_size"});
  CHECK(models[0]["inputs"] ==
        json{{{"name", "ids"}, {"dtype", "i32"}, {"shape", {"block_size"}}},
             {{"name", "targets"}, {"dtype", "i32"}, {"shape", {"block_size"}}}});
  CHECK(models[1]["type"] == "benchmark");
  CHECK(models[1]["inputs"] ==
        json{{{"name", "samples"}, {"dtype", "f32"}, {"shape", {"in_size"}}},
             {{"name", "targets"}, {"dtype", "i32"}, {"shape", json::array()}}});
  CHECK(models[2]["type"] == "gpt2");
  CHECK(models[2]["inputs"][0]["shape"] == json{"n_positions"});
  for (const auto& [index, type] : std::vector<std::pair<size_t, std::string>>{{3, "llama"},
                                                                               {4, "mistral"},
                                                                               {5, "qwen2"},
                                                                               {6, "qwen3"},
                                                                               {7, "mixtral"},
                                                                               {8, "qwen2_moe"},
                                                                               {9, "qwen3_moe"},
                                                                               {10, "olmoe"},
                                                                               {11, "deepseek_v3"},
                                                                               {12, "gemma"},
                                                                               {13, "gemma2"},
                                                                               {14, "gemma3_text"},
                                                                               {15, "gpt_neox"}}) {
    CHECK(models[index]["type"] == type);
    CHECK(models[index]["inputs"][0]["shape"] == json{"max_position_embeddings"});
  }
  CHECK(models[16]["type"] == "resnet");
  CHECK(models[16]["inputs"] ==
        json{{{"name", "images"},
              {"dtype", "f32"},
              {"shape", {"channels", "image_size", "image_size"}}},
             {{"name", "labels"}, {"dtype", "i32"}, {"shape", json::array()}}});
  CHECK(models[17]["type"] == "exported");
  CHECK(models[17]["keys"] == json{"file", "inputs", "loss_weight", "blocks", "strip_prefix"});
  CHECK(models[17]["inputs"].empty());
  const std::string text = said(folder, "models");
  CHECK(has(text, "gptlite: GPT-lite, the default\n  n_layer      12 "));
  CHECK(has(text, "  input samples: features, f32 (in_size)\n"));
}

TEST_CASE("plan, estimate and --largest need no data file, a run does") {
  const RunFolder folder;
  const std::string absent = " --config c.json --device cpu --data no.txt 2>err";
  const std::string first =
      "assumed: a vocabulary of 256, as no.txt is not there (--set dstrain.model.vocab_size=N "
      "gives the size)\n\n";
  CHECK(said(folder, "plan" + absent).starts_with(first + "rank 0 of 1 | "));
  CHECK(said(folder, "estimate" + absent).starts_with(first + "DeepSpeed's estimate"));
  const std::string largest = " --largest --device_memory 1MB --host_memory 1MB";
  CHECK(said(folder, "plan" + absent + largest).starts_with(first + "the largest GPT"));
  const json assumed{{"dstrain.model.vocab_size", 256}};
  CHECK(json::parse(said(folder, "plan --json" + absent))["assumed"] == assumed);
  const json models_that_fit = json::parse(said(folder, "plan --json" + absent + largest));
  for (const json& model : models_that_fit) CHECK(model["assumed"] == assumed);
  CHECK(
      json::parse(said(
          folder, "plan --json --config c.json --data no.bin 2>err"))["assumed"]
                                                                     ["dstrain.model.vocab_size"] ==
      50257);
  CHECK_FALSE(json::parse(said(folder, "plan --json --config c.json 2>err")).contains("assumed"));
  CHECK(has(said(folder, "--config c.json --data no.txt", 1), "no.txt"));
  CHECK(has(said(folder, "check --config c.json --set dstrain.data.format=bin", 1),
            "missing: data of format bin does not say it; give the tokenizer's number of tokens"));
}

// A file as a new user writes it: nothing about validation or checkpoints.
constexpr const char* kPlain = R"({"train_batch_size": 4, "dstrain": {"model": {"n_layer": 1,
  "n_embd": 16, "n_head": 2, "block_size": 8, "dropout": 0}, "data": {"path": "text.txt"},
  "steps": 2}})";

// The names in the folder of a run's checkpoints, with "end" behind those that the end of the run made.
std::vector<std::string> checkpoints_in(const RunFolder& folder) {
  std::vector<std::string> names;
  std::error_code none;
  for (fs::directory_iterator at(folder.path("out/checkpoints"), none), last; at != last; ++at) {
    const std::string name = at->path().filename().string();
    if (!name.starts_with("step_")) continue;
    const json manifest = json::parse(folder.read("out/checkpoints/" + name + "/manifest.json"));
    names.push_back(name + (manifest["content"].value("end", false) ? " end" : ""));
  }
  std::ranges::sort(names);
  return names;
}

// The last validation in metrics.jsonl.
json last_validation(const RunFolder& folder) {
  std::istringstream lines(folder.read("out/metrics.jsonl"));
  json last;
  for (std::string line; std::getline(lines, line);)
    if (const json object = json::parse(line); object.contains("val_loss")) last = object;
  return last;
}

using Names = std::vector<std::string>;

TEST_CASE("a run validates once at its end, one without steps too") {
  const RunFolder folder;
  folder.write("plain.json", kPlain);
  const std::string ranks = GENERATE("1", "2");
  const std::string train =
      "--config plain.json --output out --overwrite --set zero_optimization.stage=3 --num_gpus " +
      ranks;
  const std::string none = said(folder, train + " --steps 0");
  CHECK(has(none, "step 0: validation loss 3.3"));  // ln 28
  CHECK(has(none, ", perplexity 28."));
  CHECK_FALSE(fs::exists(folder.path("out/checkpoints")));
  const double fresh = last_validation(folder)["val_loss"];
  // Steps that change no weight end where a run without steps begins.
  const std::string still =
      said(folder, train + " --set optimizer.type=SGD --set optimizer.params.lr=0");
  CHECK(has(still, "step 2: validation loss 3.3"));
  CHECK(last_validation(folder) == json{{"step", 2}, {"val_loss", fresh}});
  const std::string short_part = said(folder, train + " --set dstrain.data.val_fraction=0.001");
  CHECK(has(short_part, ", none for validation, whose part has 4 characters and needs 9\n"));
  CHECK_FALSE(has(short_part, "validation loss"));
}

TEST_CASE("a run that ends can go on, and the same command replaces it where that is said") {
  const RunFolder folder;
  folder.write("plain.json", kPlain);
  const std::string train = "--config plain.json --output out ";
  for (int i = 0; i < 2; ++i) {
    said(folder, train + "--overwrite");
    CHECK(checkpoints_in(folder) == Names{"step_2 end"});
  }
  // A longer run keeps what it saved at intervals, and of its ends the newest.
  CHECK(has(said(folder, train + "--resume out --steps 4"), "resumes after step 2 of out/"));
  CHECK(checkpoints_in(folder) == Names{"step_4 end"});
  said(folder, train + "--resume out --steps 7 --save_interval 3");
  CHECK(checkpoints_in(folder) == Names{"step_6", "step_7 end"});
  const std::string over = said(folder, train + "--resume out --steps 7");
  CHECK(has(over, "no step left: resumed after step 7 of 7"));
  CHECK(checkpoints_in(folder) == Names{"step_6", "step_7 end"});
  CHECK(has(said(folder, train, 1), "holds the checkpoint of step 7 of another run"));
  said(folder, train + "--overwrite --steps 6 --save_interval 3 --set dstrain.save_last=false");
  CHECK(checkpoints_in(folder) == Names{"step_3", "step_6"});
  said(folder, train + "--resume out --steps 7 --set dstrain.save_last=false");
  CHECK(checkpoints_in(folder) == Names{"step_3", "step_6"});
}

TEST_CASE("a run on characters goes on with other text, in its own vocabulary") {
  const RunFolder folder;
  folder.write("plain.json", kPlain);
  std::string text;
  for (int i = 0; i < 60; ++i) text += "one lazy fox\n";
  folder.write("other.txt", text);
  folder.write("foreign.txt", text + "&ZZ \xc3\xa9\n");
  said(folder, "--config plain.json --output out");
  const std::string vocabulary = folder.read("out/vocab.json");
  const std::string other = "--config plain.json --data other.txt --steps 3 ";
  const std::string hint = "--vocab out reads the text with the vocabulary of the run\n";
  CHECK(has(said(folder, other + "--resume out", 1), hint));
  CHECK(has(said(folder, other + "--resume out --vocab out"), "3 of 3"));
  CHECK(folder.read("out/vocab.json") == vocabulary);
  const std::string weights = "--output new --init_weights out/model.safetensors ";
  CHECK(
      has(said(folder, other + weights, 1), "\n  --vocab RUN reads the text with the vocabulary"));
  said(folder, other + weights + "--vocab out/vocab.json");
  CHECK(has(said(folder, "--config plain.json --data foreign.txt --vocab out --output new", 1),
            "foreign.txt has 4 characters of 786 that are not in the vocabulary of --vocab (28 "
            "characters): \"Z\" (U+005A) 2 times, \"&\" (U+0026) 1 time, \"\xc3\xa9\" (U+00E9) 1 "
            "time; replace them or leave them out"));
  CHECK(has(said(folder, other + "--vocab nowhere --output new", 1),
            "--vocab nowhere: there is no nowhere"));
}

}  // namespace
}  // namespace dstrain
