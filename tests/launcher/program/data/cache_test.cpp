// Runs whose cache of token files is damaged at the same size, or whose text was: nothing is trained on that silently.
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/launcher/support/text_folder.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const std::string kKept = "out/cache/lines.jsonl.bin";

// A folder with JSON lines of which only a part of the tokens counts.
struct LinesFolder : TextFolder {
  LinesFolder() {
    std::string lines;
    for (int i = 0; i < 8; ++i)
      lines +=
          json{{"prompt", "the quick"}, {"completion", " brown fox jumps over the dog"}}.dump() +
          "\n";
    write("lines.jsonl", lines);
    write("m/tokenizer_config.json", R"({"eos_token": "<|end_of_text|>"})");
  }
  std::string lines(const std::string& options = "", int status = 0) const {
    return run("--data lines.jsonl " + options, status);
  }
  // Changes a byte of a file, but neither its size nor its time of modification.
  void damage(const std::string& name, size_t at = 0) const {
    const auto time = fs::last_write_time(root / name);
    std::string bytes = read(name);
    bytes.at(at) = static_cast<char>(bytes[at] ^ 1);
    write(name, bytes);
    fs::last_write_time(root / name, time);
  }
};

TEST_CASE("a cache that is damaged at its size is made anew before it is used, in one line") {
  const LinesFolder folder;
  const std::string packing = GENERATE("none", "pack");
  const std::string options = "--set dstrain.data.seq_len=32 --set dstrain.data.packing=" + packing;
  folder.lines(options);
  const std::string weights = folder.read("out/model.safetensors");
  std::map<std::string, std::string> whole;
  for (const std::string end : {"", ".targets", ".documents", ".sums"})
    whole[end] = folder.read(kKept + end);
  for (const auto& [end, bytes] : whole) {
    CAPTURE(end);
    folder.damage(kKept + end, bytes.size() / 2);
    const std::string text = folder.lines(options);
    const size_t line = text.find(kKept + " and the files beside it are not as they were made");
    CHECK(line != std::string::npos);
    CHECK(text.find("are not as they were made", line + 1 + kKept.size()) ==
          text.rfind("are not as they were made"));
    CHECK(has(text, "made anew of lines.jsonl"));
    CHECK(folder.read(kKept + end) == bytes);
    CHECK(folder.read("out/model.safetensors") == weights);
    CHECK(has(folder.lines(options), "tokenized before"));
  }
}

TEST_CASE("a run is resumed with a cache that is made anew, and has the same data") {
  const LinesFolder folder;
  folder.lines("--save_interval 1 --steps 4");
  const std::string weights = folder.read("out/model.safetensors");
  fs::remove_all(folder.root / "out");
  folder.lines("--save_interval 1 --steps 2");
  folder.damage(kKept, 20);
  const std::string resumed =
      folder.said(std::string(kProgram) +
                  " --config t.json --model m --data lines.jsonl --resume out --steps 4");
  CHECK(has(resumed, "are made anew of lines.jsonl"));
  CHECK_FALSE(has(resumed, "data was"));
  CHECK(folder.read("out/model.safetensors") == weights);
  // So do two ranks, of which one process prepares the cache.
  folder.damage(kKept + ".targets", 20);
  CHECK(has(folder.lines("--num_gpus 2 --overwrite"), "are made anew of lines.jsonl"));
}

TEST_CASE("a cache that was copied, or only touched, is read once and taken") {
  const LinesFolder folder;
  folder.lines();
  const std::string bytes = folder.read(kKept);
  folder.write(kKept, bytes);
  const std::string record = folder.read(kKept + ".json");
  const std::string text = folder.lines();
  CHECK(has(text, "tokenized before"));
  CHECK_FALSE(has(text, "made anew"));
  CHECK(folder.read(kKept + ".json") != record);  // which knows the file as it is now
  CHECK(has(folder.lines(), "tokenized before"));
}

TEST_CASE("damage that the file system does not tell of ends the run where it is read") {
  const LinesFolder folder;
  const auto forge = [&] {  // the record knows the file as it is
    struct stat now {};
    REQUIRE(::stat(folder.path(kKept).c_str(), &now) == 0);
    json record = json::parse(folder.read(kKept + ".json"));
    record["files"][0]["number"] = now.st_ino;
    record["files"][0]["modified_ns"] =
        int64_t{now.st_mtim.tv_sec} * 1'000'000'000 + now.st_mtim.tv_nsec;
    record["files"][0]["changed_ns"] =
        int64_t{now.st_ctim.tv_sec} * 1'000'000'000 + now.st_ctim.tv_nsec;
    folder.write(kKept + ".json", record.dump());
  };
  folder.lines();
  const std::string weights = folder.read("out/model.safetensors");
  folder.damage(kKept, 20);
  forge();
  for (const std::string ranks : {"1", "2"}) {
    const std::string text = folder.lines("--num_gpus " + ranks, 2);
    INFO(text);
    CHECK(has(only_error(text), "lines.jsonl.bin is damaged: its bytes 0 to "));
    CHECK(has(only_error(text), "remove it, so that the next run makes it anew"));
  }
  fs::remove(folder.root / kKept);
  folder.lines();
  CHECK(folder.read("out/model.safetensors") == weights);
}

TEST_CASE("a text that changes at its size and time of modification is tokenized again") {
  const LinesFolder folder;
  folder.lines();
  const std::string ids = folder.read(kKept);
  const size_t letter = folder.read("lines.jsonl").find("fox") + 1;
  folder.damage("lines.jsonl", letter);
  CHECK(has(folder.lines(), "tokenized into"));
  CHECK(folder.read(kKept) != ids);
  folder.damage("lines.jsonl", letter);
  CHECK(has(folder.lines(), "tokenized into"));
  CHECK(folder.read(kKept) == ids);
}

TEST_CASE("what a kill leaves of a cache that was being made is not used") {
  const LinesFolder folder;
  folder.lines();
  const std::string ids = folder.read(kKept), weights = folder.read("out/model.safetensors");
  const std::vector<std::string> ends = {".json", ".sums", "", ".documents", ".targets"};
  for (size_t left = 1; left <= ends.size(); ++left) {
    CAPTURE(left);
    for (size_t i = 0; i < left; ++i) fs::remove(folder.root / (kKept + ends[i]));
    folder.write(kKept + ".tmp", "a part");
    CHECK(has(folder.lines(), "tokenized into"));
    CHECK(folder.read(kKept) == ids);
    CHECK(folder.read("out/model.safetensors") == weights);
  }
}

}  // namespace
}  // namespace dstrain
