// A model is one folder below models/: what runs it asks its family, and names no model.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

#include "tests/meta/source_tree.h"

namespace dstrain::meta {
namespace {

// Keys of models that are keys of nothing else.
constexpr std::array<std::string_view, 4> kKeys{"n_layer", "n_embd", "qkv_bias", "tied_head"};
constexpr std::string_view kSection = "dstrain.model.",
                           kLetters = "abcdefghijklmnopqrstuvwxyz0123456789_";
// Keys that every model has, and fields of config.json that say nothing about one.
constexpr std::array<std::string_view, 7> kOfAllModels{
    "dstrain.model.",      "dstrain.model.type",        "dstrain.model.model_type",
    "dstrain.model.dtype", "dstrain.model.torch_dtype", "dstrain.model.architectures",
    "dstrain.model.depth"};
// Files in which block_size is a key of section aio.
constexpr std::array<std::string_view, 7> kDisks{"runtime/config/job.h",
                                                 "runtime/config/keys/deepspeed/offload.cpp",
                                                 "runtime/config/solve/solve_run.cpp",
                                                 "runtime/storage/disk/",
                                                 "launcher/cli/arguments.",
                                                 "launcher/cli/parse_arguments.cpp",
                                                 "launcher/commands/bench_io.cpp"};

// What sources outside models/ would name a family by: its type as a text, its folder, and its keys' paths.
std::vector<std::string> words_of_families() {
  std::vector<std::string> words;
  for (const SourceFile& file : read_sources({"models"}, {".h", ".cpp"})) {
    // A family is models/NAME/NAME.h, which declares it.
    const size_t slash = file.path.rfind('/'), dot = file.path.rfind('.');
    const std::string name = file.path.substr(slash + 1, dot - slash - 1);
    const std::string declared = fmt::format("const ModelFamily& {}();", name);
    if (file.path == fmt::format("models/{0}/{0}.h", name) &&
        std::ranges::find(file.lines, declared) != file.lines.end()) {
      words.push_back(fmt::format("\"{}\"", name));
      words.push_back(fmt::format("models/{}/", name));
    }
    for (const std::string& line : file.lines)
      for (size_t at = line.find(kSection); at != std::string::npos;
           at = line.find(kSection, at + 1)) {
        const size_t end = line.find_first_not_of(kLetters, at + kSection.size());
        const std::string key = line.substr(at, end - at);
        if (std::ranges::find(kOfAllModels, key) == kOfAllModels.end()) words.push_back(key);
      }
  }
  std::ranges::sort(words);
  words.erase(std::unique(words.begin(), words.end()), words.end());
  return words;
}

// Returns whether the line has the word, and not as the beginning of a longer one.
bool has_word(const std::string& line, const std::string& word) {
  for (size_t at = line.find(word); at != std::string::npos; at = line.find(word, at + 1)) {
    const size_t end = at + word.size();
    const bool whole = end == line.size() || kLetters.find(line[end]) == std::string_view::npos;
    if (whole || !std::isalnum(static_cast<unsigned char>(word.back()))) return true;
  }
  return false;
}

// Returns what of a line is a model's: its name, or a key of it. Empty: nothing.
std::string of_a_model(const std::string& path, const std::string& line,
                       const std::vector<std::string>& families) {
  for (const std::string& word : families)
    if (has_word(line, word)) return word;
  constexpr std::array<std::string_view, 4> names{"ModelKind", "gptlite", "GptLite",
                                                  "benchmark model"};
  for (const std::string_view name : names)
    if (line.find(name) != std::string::npos) return std::string(name);
  for (const std::string_view key : kKeys)
    if (line.find(key) != std::string::npos) return std::string(key);
  // nanoGPT and ShareGPT made formats of files.
  for (size_t at = line.find("GPT"); at != std::string::npos; at = line.find("GPT", at + 1))
    if (!line.substr(0, at).ends_with("nano") && !line.substr(0, at).ends_with("Share"))
      return "GPT";
  if (line.find("block_size") != std::string::npos &&
      std::ranges::none_of(kDisks, [&](std::string_view disk) { return path.starts_with(disk); }))
    return "block_size";
  if (line.find("model.vocab_size") != std::string::npos) return "model.vocab_size";
  return "";
}

TEST_CASE("no file of runtime, launcher and kernels names a model or a key of one") {
  const std::vector<std::string> families = words_of_families();
  for (const char* word : {"\"llama\"", "\"qwen3\"", "\"gpt2\"", "models/mistral/"})
    CHECK(std::ranges::find(families, word) != families.end());
  CHECK(families.size() > 30);
  CHECK(has_word("if (type == \"llama\")", "\"llama\""));
  CHECK_FALSE(has_word("dstrain.model.n_layers", "dstrain.model.n_layer"));
  std::vector<std::string> found;
  int files = 0;
  for (const SourceFile& file :
       read_sources({"runtime", "launcher", "kernels"}, {".h", ".cpp", ".cu", ".cuh", ".txt"})) {
    ++files;
    for (size_t i = 0; i < file.lines.size(); ++i)
      if (const std::string name = of_a_model(file.path, file.lines[i], families); !name.empty())
        found.push_back(fmt::format("{}:{} has {}", file.path, i + 1, name));
  }
  CHECK(files > 300);
  CHECK(found == std::vector<std::string>{});
}

}  // namespace
}  // namespace dstrain::meta
