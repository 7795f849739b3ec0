// dstrain export --format gguf: the file of a run, of its checkpoint and with merged adapters, and what is refused before
// anything is written.
#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/launcher/support/run_folder.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

// A folder with token ids and a small GPT-2.
struct GgufFolder : RunFolder {
  GgufFolder() {
    std::string ids;
    for (int i = 0; i < 400; ++i) {
      ids += static_cast<char>(i * i % 200);
      ids += '\0';
    }
    write("t.bin", ids);
    write("gpt2.json", R"({"model_type": "gpt2", "n_layer": 2, "n_embd": 32, "n_head": 2,
                           "n_positions": 8, "vocab_size": 300})");
  }
  std::string said(const std::string& words, int status = 0) const {
    return output_of(std::string(DSTRAIN_PROGRAM) + " " + words, status);
  }
  void train(const std::string& output, const std::string& options) const {
    said("--config c.json --device cpu --data t.bin --overwrite --output " + output + " " +
         options);
  }
  std::string refused(const std::string& words) const {
    return only_error(said("export " + words, 1));
  }
  bool has(const std::string& name) const { return fs::exists(root / name); }
};

const std::string kGpt2 = "--model gpt2.json ";

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Returns the bytes of a tensor in a GGUF file of two dimensions at most. The table of tensors is found by the name.
std::string tensor_in(const std::string& file, const std::string& name, size_t bytes) {
  const auto number = [&file](size_t at) {
    uint64_t value = 0;
    REQUIRE(at + sizeof value <= file.size());
    std::memcpy(&value, file.data() + at, sizeof value);
    return value;
  };
  const auto entry = [&](const std::string& tensor) {
    const std::string length{static_cast<char>(tensor.size()), 0, 0, 0, 0, 0, 0, 0};
    const size_t at = file.find(length + tensor);
    REQUIRE(at != file.npos);
    return at + length.size() + tensor.size();
  };
  const auto offset_at = [&](size_t at) {
    return at + 4 + 8 * static_cast<size_t>(static_cast<unsigned char>(file[at])) + 4;
  };
  // The data begin behind the last entry, that of the last norm's bias.
  const size_t data = (offset_at(entry("output_norm.bias")) + 8 + 31) / 32 * 32;
  return file.substr(data + number(offset_at(entry(name))), bytes);
}

TEST_CASE("a run is exported as a GGUF file, which has the weights of its own") {
  const GgufFolder folder;
  folder.train("g", kGpt2 + "--save_interval 4");
  const std::string text = folder.said("export g --format gguf");
  CHECK(contains(text, "g/export/gguf: 28 tensors, "));
  CHECK(contains(text, "no tokenizer"));
  const std::string file = folder.read("g/export/gguf/model.gguf");
  CHECK(file.starts_with(std::string("GGUF\3\0\0\0", 8)));
  CHECK(file.size() % 32 == 0);
  CHECK_FALSE(folder.has("g/export/gguf/config.json"));
  const std::string own = folder.read("g/model.safetensors");
  for (const auto& [name, bytes] :
       {std::pair<std::string, size_t>{"token_embd.weight", 300 * 32 * 4},
        {"position_embd.weight", 8 * 32 * 4},
        {"blk.1.ffn_norm.bias", 32 * 4},
        {"output_norm.weight", 32 * 4}}) {
    INFO(name);
    CHECK(contains(own, tensor_in(file, name, bytes)));
  }
  // The checkpoint has the same weights.
  folder.said("export g/checkpoints/step_4 --format gguf");
  const std::string again = folder.read("g/export/gguf_step_4/model.gguf");
  CHECK(again == file);
  folder.said("export g --format gguf --dtype q8_0 --output q");
  CHECK(folder.read("q/model.gguf").size() < file.size() / 2);
}

TEST_CASE("an earlier GGUF file is replaced where that is asked for, and other files stay") {
  const GgufFolder folder;
  folder.train("g", kGpt2);
  folder.said("export g --format hf --output e");
  folder.said("export g --format gguf --output e");
  CHECK(folder.has("e/model.safetensors"));
  CHECK(contains(folder.refused("g --format gguf --output e"), "(model.gguf)"));
  folder.said("export g --format gguf --output e --overwrite --dtype bf16");
  CHECK(folder.has("e/config.json"));
  CHECK(contains(folder.refused("g --format gguf --output x.gguf"), "expected a folder"));
  CHECK_FALSE(folder.has("x.gguf"));
}

TEST_CASE("what llama.cpp does not compute is refused before anything is written") {
  const GgufFolder folder;
  folder.train("lite", "--set dstrain.model.vocab_size=300");
  const std::string lite = folder.refused("lite --format gguf");
  CHECK(contains(lite, "llama.cpp has no architecture"));
  CHECK(contains(lite, "--format hf"));
  CHECK_FALSE(folder.has("lite/export"));
  folder.train("relu", kGpt2 + "--set dstrain.model.activation_function=relu");
  CHECK(contains(folder.refused("relu --format gguf"), "dstrain.model.activation_function"));
  CHECK_FALSE(folder.has("relu/export"));
}

TEST_CASE("adapters are merged into a GGUF file, and a run with them wants that") {
  const GgufFolder folder;
  folder.train("base", kGpt2);
  folder.train("lora", "--model base --set dstrain.lora.r=2");
  CHECK(contains(folder.refused("lora --format gguf"), "--merge writes the model"));
  CHECK_FALSE(folder.has("lora/export"));
  folder.said("export lora --format gguf --merge");
  CHECK(contains(folder.said("export lora --merge --output hf"), "28 tensors"));
  const std::string file = folder.read("lora/export/gguf/model.gguf");
  const std::string table = tensor_in(file, "token_embd.weight", 300 * 32 * 4);
  CHECK(contains(folder.read("hf/model.safetensors"), table));
  folder.said("export base --format gguf");
  const size_t bytes = 96 * 32 * 4;
  CHECK(tensor_in(file, "blk.0.attn_qkv.weight", bytes) !=
        tensor_in(folder.read("base/export/gguf/model.gguf"), "blk.0.attn_qkv.weight", bytes));
}

}  // namespace
}  // namespace dstrain
