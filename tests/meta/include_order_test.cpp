// Dependencies point one way: a module includes itself and modules on lower floors.
#include <fmt/core.h>

#include <catch2/catch.hpp>
#include <map>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "tests/meta/source_tree.h"

namespace dstrain::meta {
namespace {

const std::map<std::string, int>& floors() {
  static const std::map<std::string, int> table = {
      {"runtime/core", 0},    {"runtime/config", 1}, {"runtime/ir", 1},     {"runtime/comm", 1},
      {"runtime/storage", 2}, {"runtime/data", 2},   {"runtime/optim", 2},  {"kernels", 2},
      {"models", 3},          {"runtime/plan", 4},   {"runtime/engine", 5}, {"launcher", 6}};
  return table;
}

// "runtime/core/error.h" is in "runtime/core", "kernels/cpu/x.h" in "kernels"; a path outside the
// project's folders (a library's header) is in none.
std::optional<std::string> module_of(const std::string& path) {
  static const std::regex shape("(runtime/[^/]+|kernels|models|launcher|tests|benchmarks)/.+");
  std::smatch match;
  if (!std::regex_match(path, match, shape)) return std::nullopt;
  return match[1].str();
}

std::optional<std::string> included_path(const std::string& line) {
  static const std::regex shape("\\s*#\\s*include\\s*\"([^\"]+)\".*");
  std::smatch match;
  if (!std::regex_match(line, match, shape)) return std::nullopt;
  return match[1].str();
}

// What is wrong with `path` including `included`; empty where nothing is.
std::string complaint(const std::string& path, const std::string& included) {
  const std::optional<std::string> from = module_of(path), to = module_of(included);
  if (!to || *from == *to) return {};
  if (!floors().contains(*from)) return fmt::format("{}: module {} has no floor", path, *from);
  if (!floors().contains(*to)) return fmt::format("{} includes {}: no module", path, included);
  if (floors().at(*to) < floors().at(*from)) return {};
  return fmt::format("{} (floor {}) includes {} (floor {})", path, floors().at(*from), included,
                     floors().at(*to));
}

TEST_CASE("a module includes itself and lower floors only") {
  std::vector<std::string> complaints;
  int seen = 0;
  for (const SourceFile& file :
       read_sources({"runtime", "kernels", "models", "launcher"}, {".h", ".cpp", ".cu", ".cuh"})) {
    for (const std::string& line : file.lines) {
      const std::optional<std::string> included = included_path(line);
      if (!included) continue;
      ++seen;
      if (std::string text = complaint(file.path, *included); !text.empty())
        complaints.push_back(text);
    }
  }
  CHECK(seen > 50);
  CHECK(complaints == std::vector<std::string>{});
}

TEST_CASE("the rule notices what it forbids") {
  CHECK(complaint("runtime/core/a.cpp", "runtime/core/b.h").empty());
  CHECK(complaint("kernels/cpu/a.cpp", "runtime/ir/op.h").empty());
  CHECK(complaint("kernels/cpu/a.cpp", "hwy/highway.h").empty());
  CHECK_FALSE(complaint("runtime/core/a.cpp", "runtime/config/job.h").empty());
  CHECK_FALSE(complaint("runtime/ir/a.cpp", "runtime/config/job.h").empty());
  CHECK_FALSE(complaint("models/a.cpp", "runtime/engine/run/run.h").empty());
  CHECK_FALSE(complaint("runtime/core/a.cpp", "tests/support/x.h").empty());
  CHECK_FALSE(complaint("runtime/nowhere/a.cpp", "runtime/core/error.h").empty());
  CHECK(included_path("  #  include \"a/b.h\"  // why") == "a/b.h");
  CHECK_FALSE(included_path("#include <vector>"));
}

}  // namespace
}  // namespace dstrain::meta
