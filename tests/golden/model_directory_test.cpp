// Trains the golden GPT-2 from a folder of transformers' files, which the test writes from the golden weights: PyTorch's
// losses and norms, at every stage and on several ranks, from one file and from several, with today's names and old ones.
#include <fmt/core.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>

#include "tests/golden/run_program.h"
#include "tests/support/distance.h"

namespace dstrain::golden {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int64_t kLayers = 2, kWidth = 28, kHeads = 4, kLength = 11, kIds = 65;

struct FileTensor {
  std::vector<int64_t> shape;
  std::vector<float> values;
};
using FileTensors = std::map<std::string, FileTensor>;

// A weight of a product, which is (out, in), as Conv1D has it.
FileTensor turned(const std::vector<float>& values, int64_t out, int64_t in) {
  FileTensor t{{in, out}, std::vector<float>(values.size())};
  for (int64_t o = 0; o < out; ++o)
    for (int64_t i = 0; i < in; ++i)
      t.values[static_cast<size_t>(i * out + o)] = values[static_cast<size_t>(o * in + i)];
  return t;
}

// The golden weights by transformers' names.
FileTensors golden_tensors(const Case& golden) {
  const Weights own = read_weights(golden.folder / "init.safetensors");
  const auto vector = [&own](const std::string& name) {
    return FileTensor{{static_cast<int64_t>(own.at(name).size())}, own.at(name)};
  };
  FileTensors files{
      {"transformer.wte.weight", {{kIds, kWidth}, own.at("token_embedding_table.weight")}},
      {"transformer.wpe.weight", {{kLength, kWidth}, own.at("position_embedding_table.weight")}},
      {"transformer.ln_f.weight", vector("ln.weight")},
      {"transformer.ln_f.bias", vector("ln.bias")}};
  for (int64_t i = 0; i < kLayers; ++i) {
    const std::string from = fmt::format("blocks.{}.", i), to = fmt::format("transformer.h.{}.", i);
    const auto product = [&](const std::string& theirs, const std::string& ours, int64_t out,
                             int64_t in) {
      files[to + theirs + ".weight"] = turned(own.at(from + ours + ".weight"), out, in);
      files[to + theirs + ".bias"] = vector(from + ours + ".bias");
    };
    product("attn.c_attn", "attn.qkv", 3 * kWidth, kWidth);
    product("attn.c_proj", "attn.out_proj", kWidth, kWidth);
    product("mlp.c_fc", "mlp.fc", 4 * kWidth, kWidth);
    product("mlp.c_proj", "mlp.proj", kWidth, 4 * kWidth);
    for (const char* const kind : {"weight", "bias"}) {
      files[fmt::format("{}ln_1.{}", to, kind)] = vector(fmt::format("{}ln1.{}", from, kind));
      files[fmt::format("{}ln_2.{}", to, kind)] = vector(fmt::format("{}ln2.{}", from, kind));
    }
  }
  return files;
}

void write_bytes(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// Writes F32 tensors as the safetensors package does.
void write_tensors(const fs::path& path, const FileTensors& tensors) {
  nlohmann::ordered_json header{{"__metadata__", {{"format", "pt"}}}};
  std::string data;
  for (const auto& [name, t] : tensors) {
    const size_t begin = data.size();
    data.append(reinterpret_cast<const char*>(t.values.data()), 4 * t.values.size());
    header[name] = {{"dtype", "F32"}, {"shape", t.shape}, {"data_offsets", {begin, data.size()}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t bytes = text.size();
  write_bytes(path, std::string(reinterpret_cast<const char*>(&bytes), 8) + text + data);
}

json config_json() {
  return {{"model_type", "gpt2"}, {"n_layer", kLayers},
          {"n_embd", kWidth},     {"n_head", kHeads},
          {"vocab_size", kIds},   {"n_positions", kLength},
          {"resid_pdrop", 0.0},   {"embd_pdrop", 0.0},
          {"attn_pdrop", 0.0},    {"architectures", {"GPT2LMHeadModel"}}};
}

// Makes the folder `name` with config.json, the weights and a tokenizer's files.
fs::path model_folder(const ScratchFolder& scratch, const std::string& name,
                      const FileTensors& tensors) {
  const fs::path folder = scratch.path() / name;
  fs::create_directories(folder);
  write_bytes(folder / "config.json", config_json().dump(2) + "\n");
  write_bytes(folder / "generation_config.json", "{\"eos_token_id\": 1}\n");
  write_bytes(folder / "vocab.json", "{\"a\": 0}");
  write_tensors(folder / "model.safetensors", tensors);
  return folder;
}

// The case's configuration without its model.
json without_model(const Case& golden) {
  json config = golden.config;
  config["dstrain"].erase("model");
  return config;
}

Run train_from(const Case& golden, const ScratchFolder& scratch, const std::string& label,
               const fs::path& model, std::vector<std::string> words = {}) {
  words.insert(words.end(), {"--model", model.string()});
  return train(golden, without_model(golden), scratch, label, words, Start::model);
}

double largest_difference(const Run& run, const Case& golden, const std::string& key) {
  const json expected = read_json(golden.folder / "expected.json");
  const std::vector<double> found = run.column(key);
  std::vector<double> right;
  for (const json& step : expected.at("steps")) right.push_back(step.at(key).get<double>());
  return largest_relative_distance(right, found);
}

const std::vector<std::string> kNoSteps{"--num_gpus", "1", "--steps", "0"};

}  // namespace

TEST_CASE("a folder of transformers' files trains as PyTorch does") {
  const Case golden("gpt2");
  const ScratchFolder scratch;
  const fs::path model = model_folder(scratch, "model", golden_tensors(golden));
  const auto [ranks, stage] =
      GENERATE(table<std::string, int>({{"1", 0}, {"2", 0}, {"2", 3}, {"3", 1}}));
  CAPTURE(ranks, stage);
  const Run run =
      train_from(golden, scratch, "run", model,
                 {"--num_gpus", ranks, "--set", fmt::format("zero_optimization.stage={}", stage)});
  CHECK(largest_difference(run, golden, "loss") <= 1e-5);
  CHECK(largest_difference(run, golden, "grad_norm") <= 1e-5);
}

TEST_CASE("the output of such a run is a folder of transformers' files") {
  const Case golden("gpt2");
  const ScratchFolder scratch;
  const fs::path model = model_folder(scratch, "model", golden_tensors(golden));
  const Run same = train_from(golden, scratch, "same", model, kNoSteps);
  for (const char* const name :
       {"config.json", "generation_config.json", "vocab.json", "model.safetensors"}) {
    CAPTURE(name);
    CHECK((read_bytes(same.output / name) == read_bytes(model / name)));
  }
  // It is a model again, and trains with the same numbers.
  const Run run = train_from(golden, scratch, "again", same.output, {"--num_gpus", "1"});
  CHECK(largest_difference(run, golden, "loss") <= 1e-5);
  CHECK((read_bytes(run.output / "vocab.json") == "{\"a\": 0}"));
}

TEST_CASE("16-bit files come out as they came in, of one rank and of two") {
  const Case golden("gpt2");
  const ScratchFolder scratch;
  const fs::path model = model_folder(scratch, "model", golden_tensors(golden));
  for (const std::string dtype : {"bf16", "fp16"}) {
    CAPTURE(dtype);
    std::vector<std::string> words = kNoSteps;
    words.insert(words.end(), {"--set", "dstrain.save_dtype=" + dtype});
    const Run narrow = train_from(golden, scratch, "narrow_" + dtype, model, words);
    CHECK(read_json(narrow.output / "config.json").at("dtype") ==
          (dtype == "bf16" ? "bfloat16" : "float16"));
    CHECK(fs::file_size(narrow.output / "model.safetensors") <
          fs::file_size(model / "model.safetensors") * 6 / 10);
    for (const std::string ranks : {"1", "2"}) {
      const Run again =
          train_from(golden, scratch, "again_" + dtype + ranks, narrow.output,
                     {"--num_gpus", ranks, "--steps", "0", "--set", "zero_optimization.stage=3"});
      for (const char* const name : {"config.json", "model.safetensors"})
        CHECK((read_bytes(again.output / name) == read_bytes(narrow.output / name)));
    }
  }
}

TEST_CASE("weights in several files come in and go out, and the newest files alone stay") {
  const Case golden("gpt2");
  const ScratchFolder scratch;
  const fs::path model = model_folder(scratch, "model", golden_tensors(golden));
  std::vector<std::string> words = kNoSteps;
  words.insert(words.end(), {"--set", "dstrain.max_shard_size=20KB"});
  const Run divided = train_from(golden, scratch, "divided", model, words);
  CHECK_FALSE(fs::exists(divided.output / "model.safetensors"));
  const json index = read_json(divided.output / "model.safetensors.index.json");
  CHECK(index.at("weight_map").size() == golden_tensors(golden).size());
  const Run joined = train_from(golden, scratch, "joined", divided.output, kNoSteps);
  CHECK(
      (read_bytes(joined.output / "model.safetensors") == read_bytes(model / "model.safetensors")));
  const Run over = train_from(golden, scratch, "divided", model, kNoSteps);
  CHECK((read_bytes(over.output / "model.safetensors") == read_bytes(model / "model.safetensors")));
  CHECK_FALSE(fs::exists(over.output / "model.safetensors.index.json"));
}

TEST_CASE("the oldest files, without the prefix and with masks, are the same weights") {
  const Case golden("gpt2");
  const ScratchFolder scratch;
  const FileTensors now = golden_tensors(golden);
  FileTensors old;
  for (const auto& [name, tensor] : now)
    old[name.substr(std::string("transformer.").size())] = tensor;
  for (int64_t i = 0; i < kLayers; ++i)
    old[fmt::format("h.{}.attn.bias", i)] = {{1, 1, 2, 2}, {1, 0, 1, 1}};
  old["lm_head.weight"] = now.at("transformer.wte.weight");
  const fs::path model = model_folder(scratch, "old", old);
  const Run run = train_from(golden, scratch, "run", model, kNoSteps);
  const fs::path today = model_folder(scratch, "today", now);
  CHECK((read_bytes(run.output / "model.safetensors") == read_bytes(today / "model.safetensors")));
}

TEST_CASE("a head that differs from the embedding is an error where the head is the embedding") {
  const Case golden("gpt2");
  const ScratchFolder scratch;
  FileTensors tensors = golden_tensors(golden);
  FileTensor& head = tensors["lm_head.weight"] = tensors.at("transformer.wte.weight");
  CHECK_NOTHROW(
      train_from(golden, scratch, "same", model_folder(scratch, "same_head", tensors), kNoSteps));
  head.values.back() += 1;
  const fs::path model = model_folder(scratch, "own_head", tensors);
  CHECK_THROWS_WITH(train_from(golden, scratch, "other", model, kNoSteps),
                    Catch::Contains("set tie_word_embeddings to false in its config.json"));
  std::vector<std::string> words = kNoSteps;
  words.insert(words.end(), {"--set", "dstrain.model.tie_word_embeddings=false"});
  const Run untied = train_from(golden, scratch, "untied", model, words);
  CHECK(read_weights(untied.output / "model.safetensors").at("lm_head.weight") == head.values);
}

TEST_CASE("weights that are not the model's are named, five and a count") {
  const Case golden("gpt2");
  const ScratchFolder scratch;
  FileTensors tensors = golden_tensors(golden);
  for (const auto& [change, part] :
       std::vector<std::pair<std::function<void(FileTensors&)>, std::string>>{
           {[](FileTensors& t) { t.erase("transformer.ln_f.bias"); },
            "transformer.ln_f.bias (28) is missing"},
           {[](FileTensors& t) {
              t["extra"] = {{2}, {1, 2}};
            },
            "extra (2) is not in the model"},
           {[](FileTensors& t) {
              t["transformer.ln_f.bias"] = {{1, 28}, t["transformer.ln_f.bias"].values};
            },
            "transformer.ln_f.bias has shape (1, 28), expected (28)"},
           {[](FileTensors& t) {
              std::erase_if(
                  t, [](const auto& x) { return x.first.find(".h.1.") != std::string::npos; });
            },
            "... and 7 more"}}) {
    FileTensors changed = tensors;
    change(changed);
    const fs::path model = model_folder(scratch, "wrong", changed);
    CHECK_THROWS_WITH(train_from(golden, scratch, "run", model, kNoSteps), Catch::Contains(part));
  }
}

TEST_CASE(
    "a run does not replace the model that it starts from, and --init_weights random starts anew") {
  const Case golden("gpt2");
  const ScratchFolder scratch;
  const fs::path model = model_folder(scratch, "run/out", golden_tensors(golden));
  CHECK_THROWS_WITH(train_from(golden, scratch, "run", model, kNoSteps),
                    Catch::Contains("the folder is that of the model"));
  fs::remove(model / "model.safetensors");
  CHECK_THROWS_WITH(train_from(golden, scratch, "other", model, kNoSteps),
                    Catch::Contains("--init_weights random starts from fresh weights"));
  std::vector<std::string> words = kNoSteps;
  words.insert(words.end(), {"--init_weights", "random"});
  const Run fresh = train_from(golden, scratch, "fresh", model, words);
  const Weights weights = read_weights(fresh.output / "model.safetensors");
  CHECK(weights.size() == golden_tensors(golden).size());
  CHECK(weights.at("transformer.ln_f.weight") == std::vector<float>(kWidth, 1));
}

}  // namespace dstrain::golden
