#include <fmt/core.h>

#include <catch2/catch.hpp>
#include <regex>

#include "runtime/ir/rule.h"
#include "tests/meta/source_tree.h"

namespace dstrain::meta {
namespace {

TEST_CASE("comments are no code, and strings are no comments") {
  CHECK(
      without_comments({"a // b", "/* c", "d */ e \"//f\" /* g */ h", "'\"' // i", "1'000 // j"}) ==
      std::vector<std::string>{"a ", "    ", "     e \"//f\"         h", "'\"' ", "1'000 "});
}

TEST_CASE("every op with a kernel is named in a test of the kernels") {
  std::string tests;
  for (const SourceFile& file : read_sources({"tests/kernels"}, {".h", ".cpp"}))
    for (const std::string& line : without_comments(file.lines)) tests += line + '\n';
  std::vector<std::string> untested;
  for (int op = 0; op < kOpKinds; ++op) {
    if (!has_kernel(static_cast<OpKind>(op))) continue;
    const std::string name(name_of(static_cast<OpKind>(op)));
    if (!std::regex_search(tests, std::regex("OpKind::" + name + "\\b"))) untested.push_back(name);
  }
  CHECK(untested == std::vector<std::string>{});
}

}  // namespace
}  // namespace dstrain::meta
