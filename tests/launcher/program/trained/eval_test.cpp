// dstrain eval, and runs on short samples, on several files and for epochs, from the shell's side.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <tuple>

#include "tests/launcher/support/run_folder.h"

namespace dstrain {
namespace {

using nlohmann::json;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Returns what a command with this exit status wrote.
std::string said(const RunFolder& folder, const std::string& words, int status = 0) {
  return folder.output_of(std::string(DSTRAIN_PROGRAM) + " " + words, status);
}

json eval(const RunFolder& folder, const std::string& options) {
  return json::parse(said(folder, "eval --json " + options + " 2>err"));
}

// Returns the last value of a member in metrics.jsonl.
double last_of(const RunFolder& folder, const std::string& run, const std::string& member) {
  std::istringstream lines(folder.read(run + "/metrics.jsonl"));
  double value = std::nan("");
  for (std::string line; std::getline(lines, line);)
    if (const json object = json::parse(line); object.contains(member)) value = object[member];
  return value;
}

std::string pattern_of(int length) {
  std::string text;
  for (int i = 0; i < length; ++i) text += static_cast<char>('a' + (i * i + i / 7) % 26);
  return text;
}

// Writes a bare token file.
void write_tokens(const RunFolder& folder, const std::string& name, int first, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) {
    const int id = (first + i * i) % 300;
    bytes += static_cast<char>(id % 256);
    bytes += static_cast<char>(id / 256);
  }
  folder.write(name, bytes);
}

constexpr const char* kTokens =
    " --set dstrain.model.vocab_size=300 --set train_batch_size=4 --set dstrain.data.path=";

TEST_CASE("eval's loss is that of the run's own validation over the same samples") {
  const RunFolder folder;
  folder.write("text.txt", "abcdefghijklmnopqrstuvwxyz" + pattern_of(500));
  folder.write("val.txt", pattern_of(8 * 13 + 1));
  const std::string run = " --set dstrain.data.val_path=val.txt --set dstrain.eval_samples=100";
  for (const std::string ranks : {"1", "2", "4"}) {
    REQUIRE(folder.train("--overwrite --num_gpus " + ranks + run).wait() == 0);
    const json result = eval(folder, "--run out --data val.txt --logits logits.safetensors");
    CHECK(result["tokens"] == 8 * 13);
    CHECK(result["bytes"] == 8 * 13);
    const double loss = result["loss"], val_loss = last_of(folder, "out", "val_loss");
    CHECK(std::abs(loss - val_loss) < 1e-12 * val_loss);
    CHECK(std::abs(double(result["perplexity"]) - std::exp(loss)) < 1e-9);
    CHECK(std::abs(double(result["bits_per_byte"]) - loss / std::log(2)) < 1e-9);
    CHECK((double(result["accuracy"]) >= 0 && double(result["accuracy"]) <= 1));
    CHECK(folder.read("logits.safetensors").size() > 8 * 26 * 4);
  }
  const std::string text = said(folder, "eval --run out --data val.txt 2>err");
  CHECK(has(text, "tokens        104\n"));
  CHECK(has(text, "\nbits_per_byte "));
}

TEST_CASE("eval covers files of any length, and its logits are those that the loss is of") {
  const RunFolder folder;
  REQUIRE(folder.train("").wait() == 0);
  for (const int length : {2, 5, 8, 9, 43}) {
    const std::string all = "the quick brown fox jumps over the lazy dog";
    folder.write("some.txt", all.substr(0, static_cast<size_t>(length)));
    const json result = eval(folder, "--run out --data some.txt --logits l.safetensors");
    CHECK(result["tokens"] == length - 1);
    if (length > 9) continue;
    const std::string file = folder.read("l.safetensors");
    uint64_t header = 0;
    std::copy_n(file.data(), 8, reinterpret_cast<char*>(&header));
    const json tensor = json::parse(file.substr(8, header))["logits"];
    const int rows = std::min(length, 8);
    CHECK(tensor["dtype"] == "F32");
    CHECK(tensor["shape"] == json{rows, 28});
    const auto* logits = reinterpret_cast<const float*>(file.data() + 8 + header);
    const json vocabulary = json::parse(folder.read("out/vocab.json"))["characters"];
    double sum = 0;
    for (int r = 0; r < std::min(rows, length - 1); ++r) {
      double exponents = 0;
      for (int v = 0; v < 28; ++v) exponents += std::exp(logits[r * 28 + v]);
      const auto next = std::find(vocabulary.begin(), vocabulary.end(),
                                  std::string(1, all[static_cast<size_t>(r) + 1])) -
                        vocabulary.begin();
      sum += std::log(exponents) - logits[r * 28 + next];
    }
    if (length <= 9) CHECK(std::abs(sum / (length - 1) - double(result["loss"])) < 1e-5);
  }
}

TEST_CASE("eval takes a checkpoint, refuses what it cannot measure, and exits as commands do") {
  const RunFolder folder;
  REQUIRE(folder.train("--save_interval 2 --set bf16.enabled=true").wait() == 0);
  const json last = eval(folder, "--run out --data text.txt");
  CHECK(eval(folder, "--run out/checkpoints/step_4 --data text.txt") == last);
  CHECK(eval(folder, "--run out/checkpoints/step_2 --data text.txt")["loss"] != last["loss"]);
  folder.write("one.txt", "t");
  CHECK(has(only_error(said(folder, "eval --run out --data one.txt", 1)), "nothing to predict"));
  folder.write("other.txt", "THE fox");
  CHECK(has(only_error(said(folder, "eval --run out --data other.txt", 1)),
            "not in the vocabulary of the run"));
  write_tokens(folder, "ids.bin", 0, 20);
  CHECK(has(only_error(said(folder, "eval --run out --data ids.bin", 1)), "holds token ids"));
  CHECK(has(only_error(said(folder, "eval --run out --data none.txt", 1)), "none.txt"));
  CHECK(has(only_error(said(folder, "eval --run nowhere --data text.txt", 1)), "--run nowhere"));
  CHECK(has(only_error(said(folder, "eval --run out", 1)), "dstrain eval needs --data FILE"));
  CHECK(has(only_error(said(folder, "eval --run out --data text.txt --logits tmp", 1)),
            "--logits tmp is a directory"));
}

TEST_CASE("eval measures a folder of transformers' files without a run, in windows of any length") {
  const RunFolder folder;
  write_tokens(folder, "ids.bin", 0, 120);
  folder.write("gpt2.json", R"({"model_type": "gpt2", "n_layer": 1, "n_embd": 16, "n_head": 2,
    "n_positions": 8, "vocab_size": 300})");
  said(folder, "--config c.json --device cpu --model gpt2.json --output g" +
                   (kTokens + std::string("ids.bin")));
  const json run = eval(folder, "--run g --data ids.bin");
  CHECK(run["tokens"] == 119);
  CHECK(eval(folder, "--model g --data ids.bin") == run);
  CHECK(eval(folder, "--model g/ --data ids.bin --seq_len 8") == run);
  // A folder with the name of a type is a folder here.
  std::filesystem::copy(folder.root / "g", folder.root / "llama");
  CHECK(eval(folder, "--model llama --data ids.bin") == run);
  const json shorter = eval(folder, "--model g --data ids.bin --seq_len 3 --logits l.safetensors");
  CHECK(shorter["loss"] != run["loss"]);
  CHECK(shorter == eval(folder, "--run g --data ids.bin --seq_len 3"));
  CHECK(has(folder.read("l.safetensors"), "[3,300]"));

  const auto error = [&folder](const std::string& words) {
    return only_error(said(folder, "eval --data ids.bin --model " + words, 1));
  };
  CHECK(has(error("g --seq_len 9"), "--seq_len 9 is more than dstrain.model.n_positions 8"));
  CHECK(has(error("nowhere"), "--model nowhere: expected the folder of a model"));
  CHECK(has(error("gptlite"), "--model gptlite: expected the folder of a model"));
  CHECK(has(error("g --run g"), "takes one of --run DIR and --model DIR"));
  CHECK(has(only_error(said(folder, "eval --data text.txt --model g", 1)),
            "holds text, and the model was trained on token ids"));
  REQUIRE(folder.train("").wait() == 0);
  CHECK(has(error("out"), "--run out takes it"));
  std::filesystem::create_directory(folder.root / "m");
  folder.write("m/config.json", R"({"model_type": "gpt2", "n_positionz": 8})");
  folder.write("m/pytorch_model.bin", "");
  CHECK(has(error("m"), "n_positionz"));
  folder.write("m/config.json", folder.read("g/config.json"));
  CHECK(has(error("m"), "is a pickle"));
}

// Trains a tiny GPT-2 on the token file ids.bin, which it writes, into the folder g.
void train_small_gpt2(const RunFolder& folder) {
  write_tokens(folder, "ids.bin", 0, 120);
  folder.write("gpt2.json", R"({"model_type": "gpt2", "n_layer": 1, "n_embd": 16, "n_head": 2,
    "n_positions": 8, "vocab_size": 300})");
  said(folder, "--config c.json --model gpt2.json --output g" + (kTokens + std::string("ids.bin")));
}

TEST_CASE("eval leaves out a field of config.json that is unknown here, as training does") {
  const RunFolder folder;
  train_small_gpt2(folder);
  const json known = eval(folder, "--model g --data ids.bin");
  json config = json::parse(folder.read("g/config.json"));
  config["a_new_field"] = {{"size", 3}};
  folder.write("g/config.json", config.dump());
  CHECK(has(only_error(said(folder, "eval --model g --data ids.bin", 1)),
            "`--ignore dstrain.model.a_new_field` goes on without it"));
  CHECK(eval(folder, "--model g --data ids.bin --ignore dstrain.model.a_new_field") == known);
}

TEST_CASE("eval and generate look at the weights' files and the machine before they take memory") {
  const RunFolder folder;
  train_small_gpt2(folder);
  // The same folder with a table of 4 TB, which its files do not have.
  constexpr int64_t kIds = 1'000'000'000, kWidth = 1024;
  json config = json::parse(folder.read("g/config.json"));
  config["n_embd"] = kWidth;
  config["vocab_size"] = kIds;
  folder.write("g/config.json", config.dump());
  CHECK(has(only_error(said(folder, "eval --model g --data ids.bin", 1)),
            "the weights in g/model.safetensors do not fit the model"));
  // And then with files that have it, of holes.
  json header;
  int64_t end = 0;
  const auto add = [&](const std::string& name, const std::vector<int64_t>& shape) {
    int64_t bytes = 4;
    for (const int64_t size : shape) bytes *= size;
    header[name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {end, end + bytes}}};
    end += bytes;
  };
  add("transformer.wte.weight", {kIds, kWidth});
  add("transformer.wpe.weight", {8, kWidth});
  for (const std::string norm : {"h.0.ln_1", "h.0.ln_2", "ln_f"})
    for (const std::string kind : {".weight", ".bias"}) add("transformer." + norm + kind, {kWidth});
  for (const auto& [name, in, out] :
       std::vector<std::tuple<std::string, int64_t, int64_t>>{{"attn.c_attn", kWidth, 3 * kWidth},
                                                              {"attn.c_proj", kWidth, kWidth},
                                                              {"mlp.c_fc", kWidth, 4 * kWidth},
                                                              {"mlp.c_proj", 4 * kWidth, kWidth}}) {
    add("transformer.h.0." + name + ".weight", {in, out});
    add("transformer.h.0." + name + ".bias", {out});
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t size = text.size();
  const std::filesystem::path weights = folder.root / "g/model.safetensors";
  folder.write("g/model.safetensors",
               std::string(reinterpret_cast<const char*>(&size), sizeof(size)) + text);
  std::error_code problem;  // of a file system without so large files
  std::filesystem::resize_file(weights, sizeof(size) + size + static_cast<uint64_t>(end), problem);
  if (problem) return;
  const std::string refused = only_error(said(folder, "eval --model g --data ids.bin", 1));
  CHECK(has(refused, "the model needs at least 4.10 TB in fp32, and this machine offers "));
  CHECK(has(refused, "use a smaller model, or a machine with more memory"));
  json settings = json::parse(folder.read("g/resolved_config.json"));
  settings["values"]["dstrain.model.n_embd"]["value"] = kWidth;
  settings["values"]["dstrain.model.vocab_size"]["value"] = kIds;
  folder.write("g/resolved_config.json", settings.dump());
  CHECK(has(only_error(said(folder, "generate --run g --tokens 1 --prompt_ids 1", 1)),
            "the model needs at least 4.10 TB in fp32"));
}

TEST_CASE("short samples train on 1, 2 and 4 ranks with the same losses, and are a checkpoint's") {
  const RunFolder folder;
  const std::string options = "--save_interval 2 --set dstrain.data.seq_len=5";
  std::string weights;
  for (const std::string stage : {"0", "3"})
    for (const std::string ranks : {"1", "2", "4"}) {
      REQUIRE(folder
                  .train(options + " --num_gpus " + ranks +
                         " --overwrite --set zero_optimization.stage=" + stage)
                  .wait() == 0);
      const double loss = last_of(folder, "out", "val_loss");
      CHECK(last_of(folder, "out", "tokens") == 20);
      if (weights.empty()) weights = std::to_string(loss);
      CHECK(std::to_string(loss) == weights);
    }
  const std::string resume = "--config c.json --resume out --steps 6";
  const std::string refused = said(folder, resume, 1);
  CHECK(has(refused, "dstrain.data.seq_len was 5 and is 8"));
  CHECK(has(said(folder, resume + " --set dstrain.data.seq_len=5"), "resumes after step 4"));
  CHECK(has(said(folder, "--config c.json --resume out --steps 7 --resume_with_changes"),
            "dstrain.data.seq_len was 5 and is 8: accepted by --resume_with_changes"));
  CHECK(has(said(folder, "--config c.json --set dstrain.data.seq_len=9", 1),
            "dstrain.data.seq_len: 9 is more than dstrain.model.block_size 8"));
  CHECK(has(said(folder, "verify --config c.json --num_gpus 2 --set dstrain.data.seq_len=5"),
            "equal"));
}

TEST_CASE("several token files train as one set, and a checkpoint names them") {
  const RunFolder folder;
  write_tokens(folder, "b.bin", 3, 101);
  write_tokens(folder, "a.bin", 9, 57);
  const std::string list = kTokens + std::string("'[\"a.bin\",\"b.bin\"]' ");
  std::string losses;
  for (const std::string ranks : {"1", "2", "4"}) {
    RunningProgram program =
        folder.train("--overwrite --save_interval 4 --num_gpus " + ranks + list);
    REQUIRE(program.wait() == 0);
    CHECK(has(program.text(), "2 files (a.bin, b.bin): 158 tokens"));
    const std::string loss = std::to_string(last_of(folder, "out", "loss"));
    if (losses.empty()) losses = loss;
    CHECK(loss == losses);
  }
  CHECK(has(folder.read("out/checkpoints/step_4/manifest.json"), "2 files (a.bin, b.bin), "));
  // A pattern with the same files is the same data.
  const std::string again =
      said(folder, "--config c.json --resume out --steps 5" + (kTokens + std::string("'?.bin'")));
  CHECK_FALSE(has(again, "data was"));
  const std::string other =
      said(folder, "--config c.json --resume out --steps 6" + (kTokens + std::string("b.bin")));
  CHECK(has(other, "data was 2 files (a.bin, b.bin), "));
  const json result = eval(folder, "--run out --data b.bin");
  CHECK(result["bytes"].is_null());
  CHECK(result["bits_per_byte"].is_null());
}

TEST_CASE("--epochs takes every sample so often, and a line says so") {
  const RunFolder folder;
  write_tokens(folder, "a.bin", 3, 8 * 10 + 1);
  folder.write("e.json", R"({"train_batch_size": 4, "train_micro_batch_size_per_gpu": 1,
    "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 1, "warmup_max_lr": 1e-3,
                  "total_num_steps": "auto"}},
    "dstrain": {"model": {"n_layer": 1, "n_embd": 16, "n_head": 2, "block_size": 8, "vocab_size": 300},
                "data": {"path": "a.bin", "val_fraction": 0}, "save_last": false}})");
  for (const std::string ranks : {"1", "2", "4"}) {
    const std::string text =
        said(folder, "--config e.json --output e --overwrite --epochs 1.5 --num_gpus " + ranks);
    CHECK(has(text, "done: step 4 of 4"));  // 15 samples in batches of 4
    CHECK(has(text, "the run sees each of 10 training samples 1.6 times, in batches of 4"));
  }
  const json settings = json::parse(folder.read("e/resolved_config.json"))["values"];
  CHECK(settings["dstrain.steps"]["value"] == 4);
  CHECK(has(settings["dstrain.steps"]["origin"], "--epochs 1.5 of 10 samples"));
  CHECK(settings["scheduler.params.total_num_steps"]["value"] == 4);
  CHECK(has(said(folder, "--config c.json --epochs 1", 1), "4 and --epochs 1 both say"));
  CHECK(has(said(folder, "--config e.json --epochs 1 --steps 2", 1), "give one"));
  CHECK(has(said(folder, "--config e.json --epochs 0", 1), "--epochs: expected a number above 0"));
  CHECK(has(said(folder, "plan --config e.json --epochs 2 --num_gpus 1"), "rank 0 of 1"));
}

}  // namespace
}  // namespace dstrain
