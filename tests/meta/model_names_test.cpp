// A model is one folder below models/: what runs it asks its family, and names no model.
#include <fmt/core.h>

#include <array>
#include <catch2/catch.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tests/meta/source_tree.h"

namespace dstrain::meta {
namespace {

TEST_CASE("no file of runtime, launcher and kernels names a model") {
  constexpr std::array<std::string_view, 4> names{"ModelKind", "gptlite", "GptLite",
                                                  "benchmark model"};
  std::vector<std::string> found;
  int files = 0;
  for (const SourceFile& file :
       read_sources({"runtime", "launcher", "kernels"}, {".h", ".cpp", ".cu", ".cuh", ".txt"})) {
    ++files;
    for (size_t i = 0; i < file.lines.size(); ++i)
      for (const std::string_view name : names)
        if (file.lines[i].find(name) != std::string::npos)
          found.push_back(fmt::format("{}:{} has {}", file.path, i + 1, name));
  }
  CHECK(files > 300);
  CHECK(found == std::vector<std::string>{});
}

}  // namespace
}  // namespace dstrain::meta
