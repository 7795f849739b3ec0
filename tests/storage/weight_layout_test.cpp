// Weights whose tensors in files have other names, are transposed, split and joined.
#include "runtime/storage/weight_layout.h"

#include <catch2/catch.hpp>
#include <numeric>

#include "runtime/core/error.h"
#include "runtime/storage/weights.h"
#include "runtime/storage/weights/weights_writer.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

using Catch::Contains;
using Floats = std::vector<float>;

constexpr int64_t kWidth = 5;

Tensor view_of(Floats& values) {
  return {values.data(), {static_cast<int64_t>(values.size())}, DType::f32};
}

StateEntry weight(const std::string& name, const Shape& shape) {
  return {.name = name, .slot = "master", .global_shape = shape};
}

// qkv is joined from three tensors, the second of which is transposed; up is transposed; two weights are the halves of
// one tensor; a bias has another name; table has its own.
StateRegister weights() {
  return mapped(
      {weight("table", {7, kWidth}), weight("qkv.weight", {9, kWidth}),
       weight("up.weight", {6, kWidth}), weight("gate.weight", {2, kWidth}),
       weight("value.weight", {4, kWidth}), weight("up.bias", {6})},
      {{"qkv.weight",
        {{.tensor = "q", .rows = 2}, {.tensor = "k", .rows = 3, .transposed = true}, {"v"}}},
       {"up.weight", {{.tensor = "h.up", .transposed = true}}},
       {"gate.weight", {{.tensor = "both", .first = 0}}},
       {"value.weight", {{.tensor = "both", .first = 2}}},
       {"up.bias", {{.tensor = "h.up_bias"}}}});
}

// Element i of a weight: 100 times its place in the register, and i.
Floats values_of(size_t index, int64_t count) {
  Floats values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), static_cast<float>(100 * index));
  return values;
}

int64_t elements_of(const StateEntry& entry) {
  return entry.global_shape.elements();
}

// Writes all weights, `at_once` elements at a time and the last ones first.
void write_file(const std::string& path, const StateRegister& list, int64_t at_once) {
  WeightsWriter writer(path, list);
  for (size_t w = list.size(); w-- > 0;) {
    Floats values = values_of(w, elements_of(list[w]));
    const auto count = static_cast<int64_t>(values.size());
    for (int64_t begin = (count - 1) / at_once * at_once; begin >= 0; begin -= at_once)
      writer.write(list[w].name, begin,
                   {values.data() + begin, {std::min(at_once, count - begin)}, DType::f32});
  }
  writer.finish();
}

// Returns a tensor of a file by its definition: element (row, column), or (row).
float at(const Floats& values, int64_t row, int64_t column, int64_t columns = kWidth) {
  return values[static_cast<size_t>(row * columns + column)];
}

Floats read_tensor(const std::string& path, const std::string& name) {
  const InputFile file(path, "the weights file");
  const SafetensorsHeader header = read_safetensors_header(file);
  const SafetensorsTensor* tensor = header.find(name);
  REQUIRE(tensor != nullptr);
  Floats values(static_cast<size_t>((tensor->end - tensor->begin) / 4));
  file.read_at(values.data(), tensor->end - tensor->begin, tensor->begin);
  return values;
}

TEST_CASE("a file has the tensors of the map, in the order of the model") {
  const WeightLayout layout(weights());
  std::vector<std::string> tensors;
  for (const FileTensor& tensor : layout.tensors())
    tensors.push_back(tensor.name + to_string(tensor.shape));
  CHECK(tensors == std::vector<std::string>{"table(7, 5)", "q(2, 5)", "k(5, 3)", "v(4, 5)",
                                            "h.up(5, 6)", "both(6, 5)", "h.up_bias(6)"});
}

TEST_CASE("tensors are transposed, joined and split by their definition") {
  const TempDir dir;
  const StateRegister list = weights();
  const std::string path = dir / "w";
  write_file(path, list, 1000);
  CHECK(read_tensor(path, "table") == values_of(0, 35));
  const Floats qkv = values_of(1, 45), up = values_of(2, 30), gate = values_of(3, 10),
               value = values_of(4, 20);
  const Floats q = read_tensor(path, "q"), k = read_tensor(path, "k"), v = read_tensor(path, "v"),
               turned = read_tensor(path, "h.up"), both = read_tensor(path, "both");
  for (int64_t c = 0; c < kWidth; ++c) {
    for (int64_t r = 0; r < 9; ++r)
      CHECK(at(qkv, r, c) == (r < 2 ? at(q, r, c) : r < 5 ? at(k, c, r - 2, 3) : at(v, r - 5, c)));
    for (int64_t r = 0; r < 6; ++r) {
      CHECK(at(up, r, c) == at(turned, c, r, 6));
      CHECK(at(both, r, c) == (r < 2 ? at(gate, r, c) : at(value, r - 2, c)));
    }
  }
}

TEST_CASE("a file has the same bytes whatever pieces it is written in, and any slice is read") {
  const TempDir dir;
  const StateRegister list = weights();
  write_file(dir / "whole", list, 1000);
  for (const int64_t at_once : {1, 3, 7, 16}) {
    const std::string path = dir / fmt::format("pieces{}", at_once);
    write_file(path, list, at_once);
    CHECK(bytes_of_file(path) == bytes_of_file(dir / "whole"));
  }
  for (const int64_t parts : {1, 2, 3, 8}) {
    for (int64_t part = 0; part < parts; ++part) {
      StateRegister want = list;
      std::vector<Floats> read(want.size());
      for (size_t w = 0; w < want.size(); ++w) {
        const int64_t n = elements_of(want[w]), begin = n * part / parts;
        want[w].begin = begin;
        read[w].resize(static_cast<size_t>(n * (part + 1) / parts - begin), -1);
        want[w].local = view_of(read[w]);
      }
      load_weights(dir / "whole", want);
      for (size_t w = 0; w < want.size(); ++w) {
        const Floats all = values_of(w, elements_of(want[w]));
        const auto first = all.begin() + want[w].begin;
        CHECK(read[w] == Floats(first, first + static_cast<ptrdiff_t>(read[w].size())));
      }
    }
  }
}

TEST_CASE("messages name the tensors of the file") {
  const TempDir dir;
  write_file(dir / "plain", {weight("table", {7, kWidth}), weight("k", {3, kWidth})}, 1000);
  CHECK_THROWS_WITH(check_weights(dir / "plain", weights()),
                    Contains("q (2, 5) is missing") &&
                        Contains("k has shape (3, 5), expected (5, 3)") &&
                        Contains("h.up (5, 6) is missing"));
}

TEST_CASE("a map that is not the model's, or whose parts leave holes, is an error of the program") {
  const auto layout_of = [](const WeightMap& map) {
    return WeightLayout(mapped({weight("a", {6, 4}), weight("b", {4})}, map));
  };
  CHECK_THROWS_WITH(layout_of({{"c", {{.tensor = "x"}}}}), Contains("c, which is no weight"));
  CHECK_THROWS_WITH(layout_of({{"a", {}}}), Contains("no parts for a"));
  CHECK_THROWS_WITH(layout_of({{"a", {{.tensor = "x", .rows = 5}}}}), Contains("has 5 rows"));
  CHECK_THROWS_WITH(layout_of({{"a", {{.tensor = "x", .rows = 7}}}}), Contains("7 of its rows"));
  CHECK_THROWS_WITH(layout_of({{"b", {{.tensor = "x", .transposed = true}}}}),
                    Contains("cannot be those of x"));
  CHECK_THROWS_WITH(layout_of({{"a", {{.tensor = "x", .first = 1}}}}),
                    Contains("parts of x in weight files do not cover it"));
  CHECK_THROWS_WITH(layout_of({{"a", {{.tensor = "x", .rows = 3}, {.tensor = "x", .first = 2}}}}),
                    Contains("parts of x in weight files do not cover it"));
  CHECK_THROWS_WITH(layout_of({{"a", {{.tensor = "b"}}}}), Contains("do not cover it"));
}

}  // namespace
}  // namespace dstrain
