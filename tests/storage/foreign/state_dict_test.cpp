#include "runtime/storage/foreign/state_dict.h"

#include <catch2/catch.hpp>
#include <cstring>

#include "runtime/core/error.h"
#include "tests/support/pickle/pickle_text.h"
#include "tests/support/source_file.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

using Catch::Contains;
using Make = PickleText;

// Writes the weights to a file and returns its header and bytes.
struct Written {
  explicit Written(const ForeignWeights& weights) {
    NewFile file(dir / "model.safetensors");
    write_weights(weights, file);
    file.commit();
    header = read_safetensors_header(InputFile(file.path(), "the weights"));
    bytes = bytes_of_file(file.path());
  }
  template <class T>
  std::vector<T> values(const std::string& name) const {
    const SafetensorsTensor* const tensor = header.find(name);
    REQUIRE(tensor);
    std::vector<T> found(static_cast<size_t>(tensor->end - tensor->begin) / sizeof(T));
    std::memcpy(found.data(), bytes.data() + tensor->begin, found.size() * sizeof(T));
    return found;
  }
  TempDir dir;
  SafetensorsHeader header;
  std::string bytes;
};

// Returns a file of the dict with these keys and values, beside a storage of the numbers 0 to 5 in f32.
std::string file_of(const TempDir& dir, const std::vector<std::string>& pairs,
                    const std::string& name = "a.pt") {
  std::string storage(24, '\0');
  for (int i = 0; i < 6; ++i) {
    const auto value = static_cast<float>(i);
    std::memcpy(storage.data() + 4 * i, &value, 4);
  }
  return dir.write(name, Make::file(Make::of(Make::dict(pairs)), {storage}));
}

std::vector<std::string> names_of(const ForeignWeights& weights) {
  std::vector<std::string> names;
  for (const ForeignTensor& t : weights.tensors) names.push_back(t.name);
  return names;
}

using Names = std::vector<std::string>;

TEST_CASE(
    "a state that PyTorch has saved is written with its types, views in the order of their "
    "elements") {
  const std::string path = source_file("tests/core/formats/torch/data/values_2.pt");
  const ForeignWeights weights = weights_of_file(path, "");
  check_names(weights, path);
  const Written written(weights);
  CHECK(written.header.tensors.size() == 16);
  using Floats = std::vector<float>;
  CHECK(written.values<float>("columns") == Floats{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11});
  CHECK(written.values<float>("tied") == written.values<float>("tied_too"));
  CHECK(written.values<float>("f64") == Floats{0.1F});
  CHECK(written.values<uint16_t>("bf16") == std::vector<uint16_t>{0x3f80, 0xbf00});
  CHECK(written.values<int64_t>("steps") == std::vector<int64_t>{7});
  CHECK(written.header.find("mask")->type.name == "BOOL");
  CHECK(written.header.find("scalar")->shape.empty());
  CHECK(written.header.find("empty")->shape == std::vector<int64_t>{0, 3});
  REQUIRE(weights.notes.size() == 1);
  CHECK_THAT(weights.notes[0], Contains("of fp64, written in fp32 (1):\n  f64"));
  CHECK(bytes_of(weights) ==
        written.header.tensors.back().end - written.header.tensors.front().begin);
}

TEST_CASE("a state is found under a usual key, or under the one that is named") {
  const TempDir dir;
  const std::string state = Make::dict({Make::text("w"), Make::tensor({})});
  for (const char* key : {"state_dict", "model_state_dict", "model", "module"})
    CHECK(names_of(weights_of_file(
              file_of(dir, {Make::text("epoch"), Make::integer(1), Make::text(key), state}), "")) ==
          Names{"w"});
  const std::string path =
      file_of(dir, {Make::text("ema"), state, Make::text("epoch"), Make::integer(1)});
  CHECK(names_of(weights_of_file(path, "ema")) == Names{"w"});
  CHECK_THROWS_WITH(weights_of_file(path, ""),
                    Contains("a.pt: archive/data.pkl, byte ") &&
                        Contains("--key names another one of\n  ema\n  epoch"));
  CHECK_THROWS_WITH(weights_of_file(path, "em"), Contains("--key em: there is no such key"));
  CHECK_THROWS_WITH(weights_of_file(path, "epoch"),
                    Contains("expected a dict of tensors, got an integer"));
  const std::string model =
      dir.write("m.pt", Make::file(Make::of(Make::call(Make::name("net", "Net"), {})), {}));
  CHECK_THROWS_WITH(weights_of_file(model, ""),
                    Contains("an object of net.Net") && Contains("model.state_dict()"));
}

TEST_CASE("what is no tensor in a state is told and left out, and the last value of a key counts") {
  const TempDir dir;
  const ForeignWeights weights = weights_of_file(
      file_of(dir, {Make::text("w"), Make::integer(1), Make::text("w"),
                    Make::tensor({.sizes = {6}, .strides = {1}}), Make::text("_extra_state"),
                    Make::call(Make::name("os", "system"), {Make::text("true")}), "N", "N"}),
      "");
  CHECK(names_of(weights) == Names{"w"});
  CHECK(weights.tensors[0].sizes == std::vector<int64_t>{6});
  REQUIRE(weights.notes.size() == 1);
  CHECK_THAT(weights.notes[0],
             Contains("left out, as they are no tensors (1):\n  _extra_state (an object)"));
}

TEST_CASE("prefixes of wrappers are taken off where all names have them") {
  const auto taken = [](const Names& names, bool model) {
    ForeignWeights weights;
    for (const std::string& name : names) weights.tensors.push_back({name, {}, {}, {}});
    take_off_prefixes(weights, model);
    CHECK(weights.notes.empty() == (names_of(weights) == names));
    return names_of(weights);
  };
  CHECK(taken({"module.a", "module.b"}, false) == Names{"a", "b"});
  CHECK(taken({"module._orig_mod.a", "module._orig_mod.b"}, false) == Names{"a", "b"});
  CHECK(taken({"_orig_mod.module.a"}, false) == Names{"a"});
  CHECK(taken({"module.a", "b"}, true) == Names{"module.a", "b"});
  CHECK(taken({"model.a", "model.b"}, false) == Names{"model.a", "model.b"});
  CHECK(taken({"model.a", "model.b"}, true) == Names{"a", "b"});
  CHECK(taken({"module."}, true) == Names{"module."});
  CHECK(taken({}, true).empty());
}

TEST_CASE("weights of two names are left by the first") {
  const TempDir dir;
  ForeignWeights weights = weights_of_file(
      file_of(dir, {Make::text("b"), Make::tensor({}), Make::text("a"), Make::tensor({}),
                    Make::text("part"), Make::tensor({.sizes = {3}, .strides = {1}}),
                    Make::text("columns"), Make::tensor({.sizes = {3, 2}, .strides = {1, 3}}),
                    Make::text("rows"), Make::tensor({.sizes = {3, 2}, .strides = {2, 1}})}),
      "");
  leave_out_second_names(weights);
  CHECK(names_of(weights) == Names{"b", "part", "columns", "rows"});
  REQUIRE(weights.notes.size() == 1);
  CHECK_THAT(weights.notes[0], Contains("written by the first") && Contains("(1):\n  a is b"));
}

TEST_CASE("names that a safetensors file cannot have are refused") {
  const auto check_all = [](const Names& names) {
    ForeignWeights weights;
    for (const std::string& name : names) weights.tensors.push_back({name, {}, {}, {}});
    check_names(weights, "a.pt");
  };
  CHECK_NOTHROW(check_all({"a", "b"}));
  CHECK_THROWS_WITH(check_all({"a", "a"}), Contains("a.pt: several tensors have the name \"a\""));
  for (const char* name : {"", "__metadata__", "a\xff"})
    CHECK_THROWS_WITH(check_all({name}), Contains("which a safetensors file cannot have"));
}

TEST_CASE("the files that an index lists are one model") {
  const TempDir dir;
  file_of(dir, {Make::text("a"), Make::tensor({})}, "p-1.bin");
  file_of(dir, {Make::text("b"), Make::tensor({.sizes = {1}, .strides = {1}})}, "p-2.bin");
  const auto index = [&dir](const std::string& map) {
    return dir.write("pytorch_model.bin.index.json", "{\"weight_map\": {" + map + "}}");
  };
  const ForeignWeights weights = weights_of_index(index(R"("a": "p-1.bin", "b": "p-2.bin")"));
  CHECK(names_of(weights) == Names{"a", "b"});
  CHECK(Written(weights).values<float>("a") == std::vector<float>{0, 1, 2, 3, 4, 5});
  CHECK_THROWS_WITH(weights_of_index(index(R"("a": "p-1.bin", "c": "p-2.bin")")),
                    Contains("c in p-2.bin"));
  CHECK_THROWS_WITH(weights_of_index(index(R"("a": "../p-1.bin")")),
                    Contains("expected the name of a file beside it"));
  CHECK_THROWS_WITH(weights_of_index(index(R"("a": "p-3.bin")")), Contains("p-3.bin"));
}

}  // namespace
}  // namespace dstrain
