#include <fmt/core.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <map>

#include "tests/meta/source_tree.h"

namespace dstrain::meta {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLongestFile = 400;
constexpr int kMostFiles = 25;

TEST_CASE("no source file is longer than 400 lines: a file that grows is two ideas") {
  std::vector<std::string> too_long;
  for (const SourceFile& file :
       read_sources({"runtime", "kernels", "models", "launcher", "tests", "benchmarks", "scripts"},
                    {".h", ".cpp", ".cu", ".cuh", ".py", ".sh", "CMakeLists.txt"})) {
    if (file.lines.size() > kLongestFile)
      too_long.push_back(fmt::format("{}: {} lines", file.path, file.lines.size()));
  }
  CHECK(too_long == std::vector<std::string>{});
}

TEST_CASE("no folder has more than 25 files of its own: a folder that grows needs folders inside") {
  std::map<std::string, int> files;
  for (const char* top : {"runtime", "kernels", "models", "launcher", "tests", "benchmarks",
                          "scripts", "docs", "configs"})
    for (const auto& entry : fs::recursive_directory_iterator(source_root() / top))
      if (entry.is_regular_file() && entry.path().extension() != ".pyc")
        ++files[fs::relative(entry.path().parent_path(), source_root()).string()];
  std::vector<std::string> too_many;
  for (const auto& [folder, count] : files)
    if (count > kMostFiles) too_many.push_back(fmt::format("{}: {} files", folder, count));
  CHECK(files.size() > 30);
  CHECK(too_many == std::vector<std::string>{});
}

}  // namespace
}  // namespace dstrain::meta
