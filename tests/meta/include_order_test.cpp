// Dependencies point one way: a module includes itself and modules on lower floors. By top folder: runtime;
// above it kernels and models, which do not include each other; above them launcher; benchmarks and tests on
// top, which may include each other.
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
      {"runtime/core", 0},    {"runtime/config", 1}, {"runtime/ir", 1},    {"runtime/comm", 1},
      {"runtime/storage", 2}, {"runtime/data", 2},   {"runtime/optim", 2}, {"runtime/plan", 3},
      {"runtime/engine", 4},  {"kernels", 5},        {"models", 5},        {"launcher", 6},
      {"benchmarks", 7},      {"tests", 7}};
  return table;
}

// kernels and models implement what these declare; they know neither plans nor the engine.
bool may_implement(const std::string& module) {
  return module == "runtime/core" || module == "runtime/config" || module == "runtime/ir";
}

bool is_on_top(const std::string& module) {
  return module == "benchmarks" || module == "tests";
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

// What is wrong with `path` including `included`; empty if nothing is.
std::string violation(const std::string& path, const std::string& included) {
  const std::optional<std::string> from = module_of(path), to = module_of(included);
  if (!to || *from == *to || (is_on_top(*from) && is_on_top(*to))) return {};
  if (!floors().contains(*from)) return fmt::format("{}: module {} has no floor", path, *from);
  if (!floors().contains(*to)) return fmt::format("{} includes {}: no module", path, included);
  const bool implements = *from == "kernels" || *from == "models";
  if (implements ? may_implement(*to) : floors().at(*to) < floors().at(*from)) return {};
  return fmt::format("{} (floor {}) includes {} (floor {})", path, floors().at(*from), included,
                     floors().at(*to));
}

TEST_CASE("a module includes itself and lower floors only") {
  std::vector<std::string> violations;
  int seen = 0;
  for (const SourceFile& file :
       read_sources({"runtime", "kernels", "models", "launcher", "benchmarks", "tests"},
                    {".h", ".cpp", ".cu", ".cuh"})) {
    for (const std::string& line : file.lines) {
      const std::optional<std::string> included = included_path(line);
      if (!included) continue;
      ++seen;
      if (std::string text = violation(file.path, *included); !text.empty())
        violations.push_back(text);
    }
  }
  CHECK(seen > 50);
  CHECK(violations == std::vector<std::string>{});
}

TEST_CASE("the rule notices what it forbids") {
  CHECK(violation("runtime/core/a.cpp", "runtime/core/b.h").empty());
  CHECK(violation("kernels/cpu/a.cpp", "runtime/ir/op.h").empty());
  CHECK(violation("kernels/cpu/a.cpp", "hwy/highway.h").empty());
  CHECK_FALSE(violation("runtime/core/a.cpp", "runtime/config/job.h").empty());
  CHECK_FALSE(violation("runtime/ir/a.cpp", "runtime/config/job.h").empty());
  CHECK(violation("models/a.cpp", "runtime/config/job.h").empty());
  CHECK(violation("tests/a.cpp", "benchmarks/b.h").empty());
  CHECK(violation("benchmarks/a.cpp", "launcher/b.h").empty());
  CHECK_FALSE(violation("models/a.cpp", "runtime/engine/run/run.h").empty());
  CHECK_FALSE(violation("kernels/a.cpp", "runtime/plan/plan.h").empty());
  CHECK_FALSE(violation("kernels/a.cpp", "models/model.h").empty());
  CHECK_FALSE(violation("models/a.cpp", "kernels/b.h").empty());
  CHECK_FALSE(violation("runtime/engine/a.cpp", "models/model.h").empty());
  CHECK_FALSE(violation("runtime/plan/a.cpp", "kernels/b.h").empty());
  CHECK_FALSE(violation("launcher/a.cpp", "benchmarks/b.h").empty());
  CHECK_FALSE(violation("runtime/core/a.cpp", "tests/support/x.h").empty());
  CHECK_FALSE(violation("runtime/nowhere/a.cpp", "runtime/core/error.h").empty());
  CHECK(included_path("  #  include \"a/b.h\"  // why") == "a/b.h");
  CHECK_FALSE(included_path("#include <vector>"));
}

}  // namespace
}  // namespace dstrain::meta
