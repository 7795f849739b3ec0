// Constants that are computed here against those that PyTorch computes, where it is installed.
#include <fmt/core.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <string>
#include <string_view>

#include "models/exported/fold/elements.h"
#include "models/exported/fold/fold.h"
#include "models/exported/graph/solve_sizes.h"
#include "tests/support/skip.h"
#include "tests/support/source_file.h"
#include "tests/support/temp_dir.h"

namespace dstrain::exported {
namespace {

// Returns a Python that has PyTorch: the one that an environment variable names, or that of tests/hugging_face/README.md.
std::string python_with_torch() {
  const char* const named = std::getenv("DSTRAIN_TRANSFORMERS_PYTHON");
  const std::string python = named ? named : source_file(".deps/transformers/bin/python");
  const std::string command = fmt::format("'{}' -c 'import torch.export' > /dev/null 2>&1", python);
  return std::system(command.c_str()) == 0 ? python : "";
}

// How far a value may be from PyTorch's, whose sums are made in another order and in the type itself.
double tolerance_of(ScalarType type) {
  if (type == ScalarType::f64) return 1e-14;
  if (type == ScalarType::f32) return 2e-6;
  if (type == ScalarType::f16) return 1e-3;
  return type == ScalarType::bf16 ? 8e-3 : 0;
}

// Returns how many elements differ.
int differing(ScalarType type, std::string_view ours, std::string_view theirs) {
  const auto load = loader_of<double>(type);
  const auto size = static_cast<size_t>(size_of(type));
  int count = 0;
  for (size_t at = 0; at < ours.size(); at += size) {
    const double a = load(ours.data() + at), b = load(theirs.data() + at);
    const bool same = a == b || (std::isnan(a) && std::isnan(b)) ||
                      std::abs(a - b) <= tolerance_of(type) * std::abs(b);
    count += same ? 0 : 1;
  }
  return count;
}

TEST_CASE("constants have the values that PyTorch gives them") {
  const std::string python = python_with_torch();
  SKIP_UNLESS(!python.empty(), "no Python with torch (tests/hugging_face/README.md)");
  const TempDir folder;
  const std::string command = fmt::format("'{}' '{}' '{}' > '{}' 2>&1", python,
                                          source_file("tests/models/exported/torch/constants.py"),
                                          folder.path(), folder / "log.txt");
  const int status = std::system(command.c_str());
  INFO(bytes_of_file(folder / "log.txt"));
  REQUIRE(status == 0);
  const ExportedModel model = read_exported(folder / "model.pt2");
  const FoldedGraph folded = fold(model, with_sizes(model.graph, {}));
  const std::string expected = bytes_of_file(folder / "expected");
  REQUIRE(folded.graph.outputs.size() > 2000);
  size_t at = 0;
  for (const GraphOutput& output : folded.graph.outputs) {
    const TensorInfo& info = folded.graph.tensor(output.tensor);
    CAPTURE(info.name, name_of(info.type), to_string(info.sizes));
    const auto it = folded.constants.find(output.tensor.id);
    REQUIRE(it != folded.constants.end());
    const std::string bytes = it->second.bytes();
    REQUIRE(at + bytes.size() <= expected.size());
    CHECK(differing(info.type, bytes, std::string_view(expected).substr(at, bytes.size())) == 0);
    at += bytes.size();
  }
  CHECK(at == expected.size());
}

}  // namespace
}  // namespace dstrain::exported
