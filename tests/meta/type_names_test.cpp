#include <fmt/core.h>

#include <catch2/catch.hpp>
#include <map>
#include <regex>

#include "tests/meta/source_tree.h"

namespace dstrain::meta {
namespace {

// The types that a file defines outside of anonymous namespaces, with their namespace.
std::vector<std::string> types_of(const SourceFile& file) {
  static const std::regex opens(R"(namespace (?:(\w[\w:]*) )?\{)"), closes(R"(\}  // namespace.*)"),
      defines(
          R"((?:class|struct|enum class) (?:\w+\(\d+\) )?(\w+)(?: final)?(?: : [^;]*)?\s*\{.*)");
  std::vector<std::string> namespaces, types;
  int anonymous = 0;
  for (const std::string& line : file.lines) {
    std::smatch match;
    if (std::regex_match(line, match, opens)) {
      namespaces.push_back(match[1].str());
      anonymous += match[1].length() == 0;
    } else if (std::regex_match(line, closes) && !namespaces.empty()) {
      anonymous -= namespaces.back().empty();
      namespaces.pop_back();
    } else if (anonymous == 0 && std::regex_match(line, match, defines)) {
      std::string name;
      for (const std::string& outer : namespaces) name += outer + "::";
      types.push_back(name + match[1].str());
    }
  }
  return types;
}

TEST_CASE("no two files define types of one name: a program with both runs either's functions") {
  std::map<std::string, std::vector<std::string>> files;
  for (const SourceFile& file :
       read_sources({"runtime", "kernels", "models", "launcher", "tests", "benchmarks"},
                    {".h", ".cpp", ".cuh", ".cu"}))
    for (const std::string& type : types_of(file)) files[type].push_back(file.path);
  REQUIRE(files.contains("dstrain::Program"));
  std::vector<std::string> twice;
  for (const auto& [type, where] : files)
    if (where.size() > 1) twice.push_back(fmt::format("{}: {} and {}", type, where[0], where[1]));
  CHECK(twice == std::vector<std::string>{});
}

}  // namespace
}  // namespace dstrain::meta
