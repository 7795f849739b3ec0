#include <fmt/core.h>

#include <catch2/catch.hpp>
#include <iterator>
#include <regex>

#include "tests/meta/source_tree.h"

namespace dstrain::meta {
namespace {

// How many comparisons with the kind of an op there may be. It only falls: a pass asks what the op's rule says
// (runtime/ir/op_rule.h), so that a new op needs no change of passes. The aim is 20 at most.
constexpr size_t kMostComparisons = 15;

// Rules, optimizers and the passes that fuse and that recognise certain ops know these ops by their names.
bool may_compare(const std::string& path) {
  return path.starts_with("runtime/ir/ops/") || path.starts_with("runtime/optim/") ||
         path.starts_with("runtime/plan/recognise/") || path == "runtime/plan/passes/fuse.cpp";
}

// Returns what a comparison with a name of an enumeration looks like.
std::regex comparison_with(const std::string& type) {
  return std::regex(fmt::format(R"((==|!=)\s*{0}::|{0}::\w+\s*(==|!=)|case {0}::)", type));
}
const std::regex kOpComparison = comparison_with("OpKind");

size_t comparisons_in(const std::string& line, const std::regex& comparison = kOpComparison) {
  return static_cast<size_t>(std::distance(
      std::sregex_iterator(line.begin(), line.end(), comparison), std::sregex_iterator()));
}

TEST_CASE("comparisons with an op's kind are found, and other uses of it are none") {
  CHECK(comparisons_in("if (op.op == OpKind::copy || a.op != OpKind::zero)") == 2);
  CHECK(comparisons_in("    case OpKind::send:") == 1);
  CHECK(comparisons_in("OpKind::send == op.op") == 1);
  CHECK(comparisons_in("emit(OpKind::send, DoneBy::copies == by)") == 0);
}

TEST_CASE("ever fewer places ask which op an instruction has: the rule of the op says what it is") {
  size_t count = 0;
  std::string places;
  for (const SourceFile& file : read_sources({"runtime", "launcher", "models"}, {".h", ".cpp"})) {
    if (may_compare(file.path)) continue;
    size_t here = 0;
    for (const std::string& line : without_comments(file.lines)) here += comparisons_in(line);
    if (here > 0) places += fmt::format("{}: {}\n", file.path, here);
    count += here;
  }
  INFO(places);
  CHECK(count > 0);  // else nothing has been read
  CHECK(count <= kMostComparisons);
}

TEST_CASE("outside settings and optimizers no code asks which optimizer a run has") {
  const std::regex comparison = comparison_with("OptimizerKind");
  std::string places;
  size_t inside = 0;
  for (const SourceFile& file : read_sources({"runtime", "launcher", "models"}, {".h", ".cpp"})) {
    const bool may_ask =
        file.path.starts_with("runtime/config/") || file.path.starts_with("runtime/optim/");
    for (const std::string& line : without_comments(file.lines)) {
      const size_t here = comparisons_in(line, comparison);
      if (may_ask) inside += here;
      if (here > 0 && !may_ask) places += fmt::format("{}: {}\n", file.path, line);
    }
  }
  CHECK(inside > 0);  // else nothing has been read
  CHECK(places == "");
}

}  // namespace
}  // namespace dstrain::meta
