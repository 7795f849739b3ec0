// Runs on bare token files: the width of their ids, and more files than a process may have open.
#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/launcher/support/text_folder.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

template <class Id>
std::string ids(int count, int vocabulary = 60) {
  std::vector<Id> values;
  for (int i = 0; i < count; ++i)
    values.push_back(static_cast<Id>((i * 7 + i / 5) % vocabulary + 1));
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Id)};
}

struct TokensFolder : TextFolder {
  TokensFolder() {
    write("narrow.bin", ids<uint16_t>(400));
    write("wide.bin", ids<uint32_t>(400));
  }
};

TEST_CASE("ids of uint32 train as those of uint16, in a file, a list, a pattern and val_path") {
  const TokensFolder folder;
  const auto weights = [&](const std::string& width) {
    const std::string file = "\"" + width + ".bin\"", some = width.substr(0, 3);
    std::vector<std::string> all;
    for (const std::string& path : {file, "[" + file + "," + file + "]", "\"" + some + "*.bin\""}) {
      const std::string text = folder.run("--set 'dstrain.data.path=" + path +
                                          "' --set dstrain.data.val_path=" + width + ".bin");
      CHECK(has(text, width + ".bin is read as uint32, because every second 16-bit word is 0") ==
            (width == "wide"));
      all.push_back(folder.read("out/model.safetensors"));
    }
    return all;
  };
  CHECK(weights("narrow") == weights("wide"));
}

TEST_CASE("eval, verify and epochs read ids of uint32") {
  const TokensFolder folder;
  folder.run("--data wide.bin");
  CHECK(folder.evaluated("wide.bin") == folder.evaluated("narrow.bin"));
  CHECK(folder.evaluated("wide.bin")["tokens"] == 399);
  CHECK(
      has(folder.said(std::string(kProgram) + " verify --config t.json --model m --data wide.bin"),
          "wide.bin is read as uint32"));
  folder.run("--data narrow.bin --ignore dstrain.steps --epochs 1");
  const auto lines = lines_of(folder.read("out/metrics.jsonl"));
  folder.run("--data wide.bin --ignore dstrain.steps --epochs 1");
  CHECK(lines_of(folder.read("out/metrics.jsonl")) == lines);
}

TEST_CASE("dstrain.data.token_dtype says what ids are, and another reading is another run") {
  const TokensFolder folder;
  const std::string key = " --set dstrain.data.token_dtype=";
  folder.run("--save_interval 1 --data wide.bin");
  const std::string weights = folder.read("out/model.safetensors");
  const std::string resume =
      std::string(kProgram) + " --config t.json --model m --data wide.bin --steps 3 --resume out";
  CHECK(has(folder.said(resume + key + "uint16"), "data was"));
  folder.run("--overwrite --data wide.bin" + key + "uint16");
  CHECK(folder.read("out/model.safetensors") != weights);
  folder.run("--data wide.bin" + key + "uint32");
  CHECK(folder.read("out/model.safetensors") == weights);
  CHECK(has(only_error(folder.run("--data narrow.bin" + key + "uint32", 1)),
            "dstrain.data.token_dtype"));
  CHECK(has(only_error(folder.run("--set dstrain.data.format=char" + key + "uint32", 1)),
            "dstrain.data.token_dtype"));
  CHECK(has(only_error(folder.run("--data text.txt" + key + "uint32", 1)), "text.txt.bin its"));
}

TEST_CASE("a run has more data files than a process may have open") {
  const TokensFolder folder;
  fs::create_directory(folder.root / "many");
  for (int i = 0; i < 1100; ++i)
    folder.write("many/" + std::to_string(i) + ".bin", ids<uint16_t>(12, 40 + i % 20));
  for (const std::string ranks : {"1", "2"}) {
    const std::string text = folder.said("sh -c 'ulimit -n 1024; exec \"$0\" \"$@\"' " +
                                         folder.command("--data 'many/*.bin' --num_gpus " + ranks));
    CHECK(has(text, "1100 files ("));
    CHECK(lines_of(folder.read("out/metrics.jsonl")) >= 2);
  }
}

}  // namespace
}  // namespace dstrain
