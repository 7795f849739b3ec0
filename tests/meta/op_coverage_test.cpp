#include <fmt/core.h>

#include <catch2/catch.hpp>
#include <regex>

#include "runtime/ir/op.h"
#include "tests/meta/source_tree.h"

namespace dstrain::meta {
namespace {

// The ops after these are done by the executor, and have no kernel.
constexpr int kFirstExecutorOp = static_cast<int>(OpKind::load_batch);

TEST_CASE("every op with a kernel is named in a test of the kernels") {
  std::string tests;
  for (const SourceFile& file : read_sources({"tests/kernels"}, {".h", ".cpp"}))
    for (const std::string& line : file.lines) tests += line + '\n';
  std::vector<std::string> untested;
  for (int op = 0; op < kFirstExecutorOp; ++op) {
    const std::string name(name_of(static_cast<OpKind>(op)));
    if (!std::regex_search(tests, std::regex("OpKind::" + name + "\\b"))) untested.push_back(name);
  }
  CHECK(untested == std::vector<std::string>{});
}

}  // namespace
}  // namespace dstrain::meta
