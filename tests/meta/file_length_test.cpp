#include <fmt/core.h>

#include <catch2/catch.hpp>

#include "tests/meta/source_tree.h"

namespace dstrain::meta {
namespace {

constexpr size_t kLongestFile = 400;

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

}  // namespace
}  // namespace dstrain::meta
