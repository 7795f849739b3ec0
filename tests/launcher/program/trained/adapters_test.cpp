// Runs with adapters (dstrain.lora): what they leave, and what eval, export and --resume make of that.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "tests/launcher/support/run_folder.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

using Catch::Contains;
using nlohmann::json;

const std::string kLora = "--set dstrain.lora.r=4 --set optimizer.type=AdamW ";

// Returns what a command with this exit status wrote.
std::string said(const RunFolder& folder, const std::string& words, int status = 0) {
  return folder.output_of(std::string(DSTRAIN_PROGRAM) + " " + words, status);
}

void train(const RunFolder& folder, const std::string& output, const std::string& options) {
  INFO(said(folder,
            "--config c.json --overwrite --output " + output + " " + kLora + options + " 2>&1"));
}

double loss_of(const RunFolder& folder, const std::string& run) {
  return json::parse(said(folder, "eval --json --run " + run + " --data text.txt 2>err"))["loss"];
}

bool is_there(const RunFolder& folder, const std::string& file) {
  return std::filesystem::exists(folder.path(file));
}

TEST_CASE("a run with adapters leaves them alone, and eval finds the base again") {
  const RunFolder folder;
  said(folder, "--config c.json --output plain 2>&1");
  for (const std::string base : {"f32", "int8", "nf4"}) {
    INFO(base);
    const std::string options =
        "--set dstrain.lora.base=" + base + " --set dstrain.save_last=true --num_gpus 2 ";
    train(folder, base, options);
    CHECK(is_there(folder, base + "/adapter_config.json"));
    CHECK_FALSE(is_there(folder, base + "/model.safetensors"));
    const double loss = loss_of(folder, base);
    CHECK(loss < loss_of(folder, "plain") + 1);
    CHECK(loss_of(folder, base + "/checkpoints/step_4") == loss);
    // The base of a run that begins with a file is that file.
    train(folder, "from_" + base, options + "--init_weights plain/model.safetensors");
    const double from = loss_of(folder, "from_" + base);
    CHECK(from != loss);
    CHECK(loss_of(folder, "from_" + base + "/checkpoints/step_4") == from);
  }
  CHECK(loss_of(folder, "nf4") != loss_of(folder, "f32"));
}

TEST_CASE("weights that an earlier run has left in the folder are not taken for the run's own") {
  const RunFolder folder;
  train(folder, "fresh", "");
  said(folder, "--config c.json --overwrite --output out 2>&1");
  const double plain = loss_of(folder, "out");
  train(folder, "out", "");
  CHECK_FALSE(is_there(folder, "out/model.safetensors"));
  CHECK(loss_of(folder, "out") == loss_of(folder, "fresh"));
  said(folder, "--config c.json --overwrite --output out 2>&1");
  CHECK_FALSE(is_there(folder, "out/adapter_config.json"));
  CHECK_FALSE(is_there(folder, "out/adapter_model.safetensors"));
  CHECK(loss_of(folder, "out") == plain);
  // Nor files of an index.
  std::filesystem::rename(folder.path("out/model.safetensors"),
                          folder.path("out/model-00001-of-00001.safetensors"));
  folder.write("out/model.safetensors.index.json",
               R"({"weight_map": {"token_embedding.weight": "model-00001-of-00001.safetensors"}})");
  train(folder, "out", "");
  CHECK_FALSE(is_there(folder, "out/model.safetensors.index.json"));
  CHECK_FALSE(is_there(folder, "out/model-00001-of-00001.safetensors"));
}

TEST_CASE("adapters are not written over the weights that they are trained for") {
  const RunFolder folder;
  said(folder, "--config c.json --overwrite --output out 2>&1");
  const std::string weights = folder.read("out/model.safetensors");
  for (const std::string begin : {"out", "out/model.safetensors"})
    CHECK_THAT(
        said(folder, "--config c.json --output out " + kLora + "--init_weights " + begin + " 2>&1",
             1),
        Contains("--output out: the folder has the weights that the adapters are trained "
                 "for (out/model.safetensors)"));
  CHECK(folder.read("out/model.safetensors") == weights);
}

TEST_CASE("the merged model is the base with its adapters") {
  const RunFolder folder;
  train(folder, "apart", "");
  train(folder, "merged", "--set dstrain.lora.merge=true");
  CHECK(folder.read("apart/adapter_model.safetensors") ==
        folder.read("merged/adapter/adapter_model.safetensors"));
  CHECK(folder.read("apart/adapter_config.json") ==
        folder.read("merged/adapter/adapter_config.json"));
  CHECK_FALSE(is_there(folder, "merged/adapter_config.json"));
  CHECK_FALSE(is_there(folder, "merged/adapter_model.safetensors"));
  CHECK(loss_of(folder, "merged") == Approx(loss_of(folder, "apart")).epsilon(1e-6));
  said(folder, "export merged --format safetensors --output exported");
  CHECK(is_there(folder, "exported/model.safetensors"));
  for (const std::string run : {"apart", "merged/checkpoints/step_4"}) {
    train(folder, "merged", "--set dstrain.lora.merge=true --save_interval 4");
    CHECK_THAT(said(folder, "export " + run + " --format safetensors 2>&1", 1),
               Contains("the run has adapters beside its model: --merge writes the model with them "
                        "in its weights, --format peft the adapters alone"));
  }
}

TEST_CASE("adapters that are frozen in part are written and merged as the others") {
  const RunFolder folder;
  train(folder, "first", "");
  for (const std::string frozen : {"*lora_A*", "*lora_B*", "*attn.qkv*lora*"})
    for (const std::string ranks : {"", "--num_gpus 2 --set zero_optimization.stage=3 "}) {
      INFO(frozen << " " << ranks);
      const std::string options = ranks + "--set dstrain.lora.init=first --set " +
                                  R"('dstrain.parameter_groups=[{"match": [")" + frozen +
                                  R"("], "trainable": false}]' )";
      train(folder, "apart", options);
      train(folder, "merged", options + "--set dstrain.lora.merge=true");
      CHECK(folder.read("apart/adapter_model.safetensors") ==
            folder.read("merged/adapter/adapter_model.safetensors"));
      CHECK(folder.read("apart/adapter_model.safetensors") !=
            folder.read("first/adapter_model.safetensors"));
      CHECK(loss_of(folder, "merged") == Approx(loss_of(folder, "apart")).epsilon(1e-6));
    }
}

TEST_CASE("one run's adapters are not left beside another run's model") {
  const RunFolder folder;
  train(folder, "out", "");
  train(folder, "out", "--set dstrain.lora.merge=true");
  CHECK_FALSE(is_there(folder, "out/adapter_config.json"));
  CHECK_FALSE(is_there(folder, "out/adapter_model.safetensors"));
  CHECK(is_there(folder, "out/adapter/adapter_config.json"));
  train(folder, "out", "");
  CHECK(is_there(folder, "out/adapter_config.json"));
  CHECK_FALSE(is_there(folder, "out/adapter"));
  train(folder, "out", "--set dstrain.lora.merge=true");
  said(folder, "--config c.json --overwrite --output out 2>&1");
  CHECK_FALSE(is_there(folder, "out/adapter"));
  // What has the folder's name is known before the run.
  folder.write("out/adapter", "mine");
  CHECK_THAT(said(folder,
                  "--config c.json --overwrite --output out " + kLora +
                      "--set dstrain.lora.merge=true 2>&1",
                  1),
             Contains("out/adapter: the run writes its adapters to a folder of this name"));
  CHECK(folder.read("out/adapter") == "mine");
}

// A folder of transformers' files, base, whose config.json alone says where a text ends; and token ids.
struct HubFolder : RunFolder {
  HubFolder() {
    std::string bytes;
    for (int i = 0; i < 200; ++i) bytes += {static_cast<char>(i * i % 50), '\0'};
    write("ids.bin", bytes);
    write("gpt2.json", R"({"model_type": "gpt2", "n_layer": 1, "n_embd": 16, "n_head": 2,
      "n_positions": 8, "vocab_size": 1000})");
    run("base", "--model gpt2.json");
    json config = json::parse(read("base/config.json"));
    config["eos_token_id"] = 999;
    write("base/config.json", config.dump());
    write("base/tokenizer.json",
          bytes_of_file(DSTRAIN_SOURCE_DIR "/tests/data/tokenizer/golden/llama3.json"));
  }
  void run(const std::string& output, const std::string& options) const {
    said(*this, "--config c.json --data ids.bin --set optimizer.type=AdamW --overwrite --output " +
                    output + " " + options + " 2>&1");
  }
  json eval(const std::string& options) const {
    return json::parse(said(*this, "eval --json --data ids.bin " + options + " 2>err"));
  }
};

TEST_CASE("on a folder of transformers' files a run leaves what transformers open") {
  const HubFolder folder;
  const std::string lora = "--model base --set dstrain.lora.r=4 ";
  std::filesystem::create_directory(folder.path("apart"));
  folder.write("apart/config.json", "of an earlier run");
  folder.run("apart", lora);
  folder.run("merged", lora + "--set dstrain.lora.merge=true");
  // transformers open the base with adapters where there is no config.json beside them, and add adapters to a model that has
  // them beside it.
  CHECK_FALSE(is_there(folder, "apart/config.json"));
  CHECK_FALSE(is_there(folder, "apart/model.safetensors"));
  CHECK(json::parse(folder.read("apart/adapter_config.json"))["base_model_name_or_path"] ==
        folder.path("base"));
  CHECK(is_there(folder, "merged/config.json"));
  CHECK_FALSE(is_there(folder, "merged/adapter_config.json"));
  CHECK(is_there(folder, "merged/adapter/adapter_model.safetensors"));
  const double loss = folder.eval("--run apart")["loss"];
  CHECK(loss == Approx(double(folder.eval("--model merged")["loss"])).epsilon(1e-6));
  CHECK(folder.eval("--run merged") == folder.eval("--model merged"));
  CHECK_THAT(said(folder, "eval --model apart --data ids.bin 2>&1", 1),
             Contains("--run apart takes it"));
  // Each is an adapter to begin with.
  for (const std::string from : {"apart", "merged"}) {
    folder.run("on", lora + "--steps 0 --set dstrain.lora.init=" + from);
    CHECK(folder.read("on/adapter_model.safetensors") ==
          folder.read("apart/adapter_model.safetensors"));
  }
  folder.run("whole", lora + "--steps 6");
  folder.run("half", lora + "--steps 3 --set dstrain.save_last=true");
  folder.run("half", lora + "--steps 6 --resume half");
  CHECK(folder.read("half/adapter_model.safetensors") ==
        folder.read("whole/adapter_model.safetensors"));
  CHECK_FALSE(is_there(folder, "half/config.json"));
}

TEST_CASE("where a text ends is known of a run with adapters alone, too") {
  const HubFolder folder;
  folder.run("apart", "--model base --set dstrain.lora.r=4 ");
  const auto generated = [&folder](const std::string& tokens) {
    return said(folder,
                "generate --run apart --temperature 0 --prompt_ids 1,2,3 2>err --tokens " + tokens);
  };
  const std::string usual = generated("4"), prompt = generated("0");
  REQUIRE(usual != prompt);
  // The first of the new ids ends the text where config.json of the base names it.
  std::filesystem::rename(folder.path("base/tokenizer.json"), folder.path("kept"));
  std::filesystem::remove(folder.path("apart/tokenizer.json"));
  const std::string ids = generated("1");
  REQUIRE(ids.starts_with("1,2,3,"));
  const int first = std::stoi(ids.substr(6));
  std::filesystem::rename(folder.path("kept"), folder.path("base/tokenizer.json"));
  json config = json::parse(folder.read("base/config.json"));
  config["eos_token_id"] = first;
  folder.write("base/config.json", config.dump());
  CHECK(generated("4") == prompt);
}

TEST_CASE("a run with adapters is resumed with the same bits, whatever its base is kept in") {
  const RunFolder folder;
  for (const std::string base : {"f32", "nf4"}) {
    INFO(base);
    const std::string options = "--set dstrain.lora.base=" + base + " ";
    train(folder, "whole", options);
    train(folder, base, options + "--steps 2 --set dstrain.save_last=true");
    const std::string resume = "--resume " + base + " ";
    said(folder, "--config c.json " + kLora + options + resume + "2>&1");
    CHECK(folder.read(base + "/adapter_model.safetensors") ==
          folder.read("whole/adapter_model.safetensors"));
    CHECK(loss_of(folder, base) == loss_of(folder, "whole"));
    CHECK_THAT(said(folder,
                    "--config c.json " + resume + "--steps 6 " + kLora + options +
                        "--set dstrain.lora.r=2 2>&1",
                    1),
               Contains("dstrain.lora was rank 4"));
  }
}

// The f32 tensors of a safetensors file, by their names.
std::map<std::string, std::vector<float>> tensors_of(const RunFolder& folder,
                                                     const std::string& file) {
  const std::string bytes = folder.read(file);
  REQUIRE(bytes.size() > 8);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  std::map<std::string, std::vector<float>> tensors;
  const json header = json::parse(bytes.substr(8, length));
  for (const auto& [name, tensor] : header.items()) {
    if (name == "__metadata__") continue;
    REQUIRE(tensor["dtype"] == "F32");
    const size_t begin = tensor["data_offsets"][0], end = tensor["data_offsets"][1];
    std::vector<float>& values = tensors[name];
    values.resize((end - begin) / sizeof(float));
    std::memcpy(values.data(), bytes.data() + 8 + length + begin, end - begin);
  }
  return tensors;
}

TEST_CASE("export --merge writes the base with what the adapters add to it") {
  const RunFolder folder;
  said(folder, "--config c.json --output plain 2>&1");
  const std::string begin = "--init_weights plain/model.safetensors ";
  train(folder, "run",
        begin + "--set dstrain.lora.alpha=6 " +
            "--set 'dstrain.lora.targets=\"all-linear\"' --steps 2 --save_interval 2");
  // A resumed run has the same base, and says so.
  said(folder, "--resume run --steps 4 2>&1");
  for (const std::string run : {"run", "run/checkpoints/step_4"}) {
    INFO(run);
    said(folder, "export " + run + " --merge --format safetensors --overwrite --output merged");
    const auto base = tensors_of(folder, "plain/model.safetensors"),
               adapters = tensors_of(folder, "run/adapter_model.safetensors"),
               merged = tensors_of(folder, "merged/model.safetensors");
    REQUIRE(merged.size() == base.size());
    int adapted = 0;
    for (const auto& [name, values] : base) {
      INFO(name);
      const std::vector<float>& sums = merged.at(name);
      REQUIRE(sums.size() == values.size());
      const std::string module = "base_model.model." + name.substr(0, name.rfind('.'));
      const auto a = adapters.find(module + ".lora_A.weight");
      if (a == adapters.end() || !name.ends_with(".weight")) {
        CHECK(sums == values);
        continue;
      }
      ++adapted;
      const std::vector<float>& b = adapters.at(module + ".lora_B.weight");
      const size_t r = 4, inputs = a->second.size() / r, outputs = b.size() / r;
      REQUIRE(values.size() == inputs * outputs);
      double largest = 0, added = 0;
      for (size_t row = 0; row < outputs; ++row)
        for (size_t column = 0; column < inputs; ++column) {
          double product = 0;
          for (size_t k = 0; k < r; ++k)
            product += double{b[row * r + k]} * a->second[k * inputs + column];
          const size_t at = row * inputs + column;
          added = std::max(added, std::abs(6.0 / 4 * product));
          largest = std::max(largest, std::abs(values[at] + 6.0 / 4 * product - sums[at]));
        }
      CHECK(added > 1e-5);
      CHECK(largest < 1e-6);
    }
    CHECK(adapted == 4);  // qkv, out_proj, fc and proj of the layer
    CHECK(loss_of(folder, "run") == loss_of(folder, "run/checkpoints/step_4"));
  }
}

TEST_CASE("export --merge rounds a packed base as the run did, and writes whole folders") {
  const HubFolder folder;
  folder.run("run",
             "--model base --set dstrain.lora.r=4 --set dstrain.lora.base=nf4 "
             "--save_interval 2");
  folder.run("whole", "--model base --set dstrain.lora.r=4 --set dstrain.lora.merge=true");
  folder.run("apart", "--model base --set dstrain.lora.r=4");
  said(folder, "export run --merge --dtype fp32 --output nf4");
  said(folder, "export run/checkpoints/step_4 --merge --dtype fp32 --output from_checkpoint");
  said(folder, "export apart --merge --output merged");
  CHECK(folder.read("nf4/model.safetensors") == folder.read("from_checkpoint/model.safetensors"));
  CHECK(double(folder.eval("--model nf4")["loss"]) ==
        Approx(double(folder.eval("--run run")["loss"])).epsilon(1e-6));
  CHECK(folder.eval("--model nf4") != folder.eval("--model merged"));
  // The same files as those of a run that merges.
  for (const std::string name : {"model.safetensors", "config.json", "tokenizer.json"})
    CHECK(folder.read("merged/" + name) == folder.read("whole/" + name));
  CHECK_FALSE(is_there(folder, "merged/adapter_config.json"));
  CHECK(said(folder, "generate --model merged --prompt_ids 1,2,3 --tokens 4 --temperature 0") ==
        said(folder, "generate --run apart --prompt_ids 1,2,3 --tokens 4 --temperature 0"));
  CHECK_THAT(said(folder, "export base --merge 2>&1", 1), Contains("the run has no adapters"));
}

TEST_CASE("export --format peft writes a run's adapters, whatever the run has left") {
  const RunFolder folder;
  train(folder, "apart", "--save_interval 2");
  train(folder, "merged", "--set dstrain.lora.merge=true --save_interval 4");
  const auto exports = [&folder](const std::string& run) {
    INFO(run);
    said(folder, "export " + run + " --format peft --overwrite --output peft");
    CHECK(folder.read("peft/adapter_model.safetensors") ==
          folder.read("apart/adapter_model.safetensors"));
    CHECK(folder.read("peft/adapter_config.json") == folder.read("apart/adapter_config.json"));
  };
  for (const std::string run :
       {"apart", "apart/checkpoints/step_4", "merged", "merged/checkpoints/step_4"})
    exports(run);
  // A run that was killed has its checkpoints.
  const double loss = loss_of(folder, "apart/checkpoints/step_4");
  std::filesystem::rename(folder.path("apart"), folder.path("killed"));
  std::filesystem::copy(folder.path("killed"), folder.path("apart"),
                        std::filesystem::copy_options::recursive);
  std::filesystem::remove(folder.path("killed/adapter_model.safetensors"));
  CHECK(loss_of(folder, "killed") == loss);
  exports("killed");
}

TEST_CASE("an adapter to begin with must be one of the same rank") {
  const RunFolder folder;
  train(folder, "first", "");
  train(folder, "second", "--steps 0 --set dstrain.lora.init=first");
  CHECK(folder.read("first/adapter_model.safetensors") ==
        folder.read("second/adapter_model.safetensors"));
  const auto error = [&](const std::string& options) {
    return said(folder, "--config c.json --output x " + kLora + options + " 2>&1", 1);
  };
  CHECK_THAT(error("--set dstrain.lora.init=first --set dstrain.lora.r=8"),
             Contains("first/adapter_config.json: the adapter has rank 4"));
  CHECK_THAT(error("--set dstrain.lora.init=nowhere"), Contains("nowhere/adapter_config.json"));
  CHECK_THAT(error("--set 'dstrain.lora.targets=[\"nothing\"]'"),
             Contains("no product has a name that ends in \"nothing\""));
  // PEFT would put the adapter of a tied head on the embedding.
  CHECK_THAT(error("--set dstrain.model.tied_head=true --set "
                   "'dstrain.lora.targets=[\"token_embedding_table\"]'"),
             Contains("no product has a name that ends in \"token_embedding_table\""));
  CHECK_FALSE(is_there(folder, "x/metrics.jsonl"));
}

}  // namespace
}  // namespace dstrain
