// A model is one folder below models/: what runs it asks its family, and names no model.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tests/meta/source_tree.h"

namespace dstrain::meta {
namespace {

// Keys of models that are keys of nothing else.
constexpr std::array<std::string_view, 4> kKeys{"n_layer", "n_embd", "qkv_bias", "tied_head"};
// Files in which block_size is a key of section aio.
constexpr std::array<std::string_view, 7> kDisks{"runtime/config/job.h",
                                                 "runtime/config/keys/deepspeed/offload.cpp",
                                                 "runtime/config/solve/solve_run.cpp",
                                                 "runtime/storage/disk/",
                                                 "launcher/cli/arguments.",
                                                 "launcher/cli/parse_arguments.cpp",
                                                 "launcher/commands/bench_io.cpp"};

// Returns what of a line is a model's: its name, or a key of it. Empty: nothing.
std::string of_a_model(const std::string& path, const std::string& line) {
  constexpr std::array<std::string_view, 4> names{"ModelKind", "gptlite", "GptLite",
                                                  "benchmark model"};
  for (const std::string_view name : names)
    if (line.find(name) != std::string::npos) return std::string(name);
  for (const std::string_view key : kKeys)
    if (line.find(key) != std::string::npos) return std::string(key);
  for (size_t at = line.find("GPT"); at != std::string::npos; at = line.find("GPT", at + 1))
    if (at < 4 || line.compare(at - 4, 4, "nano") != 0) return "GPT";  // nanoGPT made a file format
  if (line.find("block_size") != std::string::npos &&
      std::ranges::none_of(kDisks, [&](std::string_view disk) { return path.starts_with(disk); }))
    return "block_size";
  if (line.find("model.vocab_size") != std::string::npos) return "model.vocab_size";
  return "";
}

TEST_CASE("no file of runtime, launcher and kernels names a model or a key of one") {
  std::vector<std::string> found;
  int files = 0;
  for (const SourceFile& file :
       read_sources({"runtime", "launcher", "kernels"}, {".h", ".cpp", ".cu", ".cuh", ".txt"})) {
    ++files;
    for (size_t i = 0; i < file.lines.size(); ++i)
      if (const std::string name = of_a_model(file.path, file.lines[i]); !name.empty())
        found.push_back(fmt::format("{}:{} has {}", file.path, i + 1, name));
  }
  CHECK(files > 300);
  CHECK(found == std::vector<std::string>{});
}

}  // namespace
}  // namespace dstrain::meta
