// Imports, exports and files of teachers that are killed at any moment: each file is whole or not there, and another try writes all.
#include <catch2/catch.hpp>
#include <filesystem>
#include <map>
#include <string>

#include "tests/launcher/support/run_folder.h"
#include "tests/support/source_file.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

using Files = std::map<std::string, std::string>;

struct ConversionFolder : RunFolder {
  std::string command(const std::string& words) const {
    return std::string(DSTRAIN_PROGRAM) + " " + words;
  }
  // Returns the files of a folder, by their paths in it.
  Files files(const std::string& folder) const {
    Files found;
    if (!fs::exists(root / folder)) return found;
    for (const auto& entry : fs::recursive_directory_iterator(root / folder))
      if (entry.is_regular_file()) {
        const fs::path name = fs::relative(entry.path(), root / folder);
        found[name.string()] = read((fs::path(folder) / name).string());
      }
    return found;
  }
  // Runs a conversion, which `words` and an output folder are, to its end and again and again until it is killed.
  void convert(const std::string& words) const {
    CAPTURE(words);
    output_of(command(words + " --output whole"));
    const Files whole = files("whole");
    REQUIRE_FALSE(whole.empty());
    for (int ms = 1; ms <= 16; ++ms) {
      const std::string seconds = "0.0" + std::string(ms < 10 ? "0" : "") + std::to_string(ms);
      output_of("sh -c 'timeout -s KILL " + seconds + " " +
                command(words + " --output cut --overwrite; true'"));
      for (const auto& [name, bytes] : files("cut"))
        if (const auto known = whole.find(name); known != whole.end()) {
          CAPTURE(ms, name);
          CHECK((bytes == known->second));
        }
    }
    output_of(command(words + " --output cut --overwrite"));
    CHECK((files("cut") == whole));
    fs::remove_all(root / "whole");
    fs::remove_all(root / "cut");
  }
};

TEST_CASE("an import that is killed leaves nothing half-written") {
  const ConversionFolder folder;
  folder.convert("import " + source_file("tests/storage/foreign/data/gpt2"));
  folder.convert("import " + source_file("tests/golden/deepspeed/stage2") + " --optimizer_state");
}

TEST_CASE("an export that is killed leaves nothing half-written") {
  const ConversionFolder folder;
  std::string ids;
  for (int i = 0; i < 400; ++i) ids += {static_cast<char>(i * i % 200), '\0'};
  folder.write("t.bin", ids);
  folder.write("gpt2.json", R"({"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 2,
                                "n_positions": 8, "vocab_size": 3000})");
  folder.output_of(folder.command(
      "--config c.json --device cpu --data t.bin --steps 1 --model gpt2.json --output run"));
  folder.convert("export run --format gguf");
  folder.convert("export run --format hf");
}

TEST_CASE("a teacher that is killed leaves no file, or the one that there was") {
  const ConversionFolder folder;
  std::string ids;
  for (int i = 0; i < 900; ++i) ids += {static_cast<char>(i * i % 200), '\0'};
  folder.write("t.bin", ids);
  folder.write("gpt2.json", R"({"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 2,
                                "n_positions": 8, "vocab_size": 3000})");
  folder.output_of(folder.command(
      "--config c.json --device cpu --data t.bin --steps 1 --model gpt2.json --output run"));
  const auto teach = [&folder](const std::string& options) {
    return folder.command("teach --device cpu --run run --data t.bin " + options);
  };
  folder.output_of(teach("--top_k 8"));
  const std::string before = folder.read("t.bin.teacher");
  folder.output_of(teach("--top_k 9 --output whole"));
  const std::string whole = folder.read("whole");
  CHECK(whole.size() == before.size() / 8 * 9);
  for (int ms = 10; ms <= 100; ms += 6) {
    CAPTURE(ms);
    const std::string seconds = "0." + std::string(ms < 100 ? "0" : "") + std::to_string(ms);
    folder.output_of("sh -c 'timeout -s KILL " + seconds + " " + teach("--top_k 9") + "; true'");
    const std::string now = folder.read("t.bin.teacher");
    CHECK((now == before || now == whole));
  }
  folder.output_of(teach("--top_k 9"));
  CHECK((folder.read("t.bin.teacher") == whole));
}

}  // namespace
}  // namespace dstrain
