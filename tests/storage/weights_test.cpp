#include "runtime/storage/weights.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <numeric>

#include "runtime/core/error.h"
#include "runtime/core/threads/parts.h"
#include "runtime/storage/weights/weight_files.h"
#include "runtime/storage/weights/weights_reader.h"
#include "runtime/storage/weights/weights_writer.h"
#include "tests/support/file_limit.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

using Catch::Contains;

Tensor view(std::vector<float>& values) {
  return {values.data(), {static_cast<int64_t>(values.size())}, DType::f32};
}

StateEntry entry(const std::string& name, const Shape& shape, std::vector<float>& values,
                 int64_t begin = 0) {
  return {
      .name = name, .slot = "master", .global_shape = shape, .begin = begin, .local = view(values)};
}

std::vector<float> counted(int64_t n, float from = 0) {
  std::vector<float> values(static_cast<size_t>(n));
  std::iota(values.begin(), values.end(), from);
  return values;
}

// A file with one tensor "x" of the given dtype and bytes.
std::string file_of(std::string_view dtype, const std::vector<uint16_t>& halves) {
  std::vector<SafetensorsTensor> tensors = {
      {.name = "x", .type = {dtype, 2}, .shape = {static_cast<int64_t>(halves.size())}}};
  return make_safetensors_header(tensors) +
         std::string(reinterpret_cast<const char*>(halves.data()), 2 * halves.size());
}

std::string load_error(const std::string& path, const StateRegister& want) {
  try {
    load_weights(path, want);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST_CASE("weights are rounded to 16-bit masters, slice by slice") {
  TempDir dir;
  const std::string path = dir / "model.safetensors";
  std::vector<float> a = counted(300'000, 0.3f);
  {
    WeightsWriter writer(path, {entry("a", {300'000}, a)});
    writer.write("a", 0, view(a));
    writer.finish();
  }
  const auto load = [&](DType dtype, int64_t begin, std::vector<uint16_t>& bits) {
    const Tensor local{bits.data(), {static_cast<int64_t>(bits.size())}, dtype};
    load_weights(path, {{.name = "a",
                         .slot = "master",
                         .global_shape = {300'000},
                         .dtype = dtype,
                         .begin = begin,
                         .local = local}});
  };
  std::vector<uint16_t> all(300'000), tail(7);
  load(DType::bf16, 0, all);
  load(DType::f16, 100, tail);
  bool equal = true;
  for (size_t i = 0; i < all.size(); ++i) equal &= all[i] == to_bf16(a[i]).bits;
  CHECK(equal);
  for (size_t i = 0; i < tail.size(); ++i) CHECK(tail[i] == to_f16(a[100 + i]).bits);
}

TEST_CASE("threads share the pieces of long weights, and a number that is none is one error") {
  TempDir dir;
  const std::string path = dir / "model.safetensors";
  constexpr int64_t kLong = (int64_t{5} << 19) + 7, kShort = 11;
  std::vector<float> a = counted(kLong, 0.3f), b = counted(kShort, 100);
  const auto write = [&] {
    WeightsWriter writer(path, {entry("a", {kLong}, a), entry("b", {kShort}, b)});
    writer.write("a", 0, view(a));
    writer.write("b", 0, view(b));
    writer.finish();
  };
  write();
  const int before = thread_count();
  for (const int threads : {1, 3}) {
    CAPTURE(threads);
    set_thread_count(threads);
    std::vector<float> whole(kLong), slice(kLong - 5), short_one(kShort);
    load_weights(path, {entry("a", {kLong}, whole), entry("b", {kShort}, short_one)});
    CHECK(whole == a);
    CHECK(short_one == b);
    std::vector<float> none;
    load_weights(path, {entry("a", {kLong}, slice, 5), entry("b", {kShort}, none, kShort)});
    CHECK(std::equal(slice.begin(), slice.end(), a.begin() + 5));
  }
  a[kLong - 2] = std::numeric_limits<float>::infinity();
  write();
  std::vector<float> whole(kLong), short_one(kShort);
  CHECK_THAT(load_error(path, {entry("a", {kLong}, whole), entry("b", {kShort}, short_one)}),
             Contains(fmt::format("element {} of a is infinite", kLong - 2)));
  set_thread_count(before);
}

TEST_CASE("weights in blocks are packed as they are read, whole groups of any slice") {
  TempDir dir;
  const std::string path = dir / "model.safetensors";
  constexpr int64_t kValues = 300 * kWeightGroup + 700;  // the last group is not whole
  std::vector<float> a = counted(kValues, 0.3f);
  {
    WeightsWriter writer(path, {entry("a", {kValues}, a)});
    writer.write("a", 0, view(a));
    writer.finish();
  }
  for (const BlockFormat format : {BlockFormat::int8, BlockFormat::nf4}) {
    std::vector<std::byte> expected(static_cast<size_t>(packed_bytes(format, kValues)));
    CHECK(pack_groups(format, a.data(), kValues, expected.data()));
    const int64_t group = group_bytes(format), groups = packed_bytes(format, kValues) / group;
    for (const auto& [first, end] :
         std::vector<std::pair<int64_t, int64_t>>{{0, groups}, {0, 1}, {3, 290}, {300, groups}}) {
      std::vector<std::byte> bytes(static_cast<size_t>((end - first) * group));
      load_weights(path, {{.name = "a",
                           .slot = "master",
                           .global_shape = {kValues},
                           .dtype = DType::u8,
                           .begin = first * kWeightGroup,
                           .local = {bytes.data(), {(end - first) * group}, DType::u8},
                           .blocks = format}});
      CHECK(std::equal(bytes.begin(), bytes.end(), expected.begin() + first * group));
    }
  }
}

TEST_CASE("weights written slice by slice in any order are read back, whole and in other slices") {
  TempDir dir;
  const std::string path = dir / "model.safetensors";
  std::vector<float> a = counted(35), b = counted(7, 100), none;
  {
    WeightsWriter writer(path, {entry("a", {5, 7}, a), entry("b", {7}, b)});
    writer.write("a", 20, {a.data() + 20, {15}, DType::f32});
    writer.write("b", 0, view(b));
    writer.write("a", 0, {a.data(), {20}, DType::f32});
    CHECK_FALSE(std::filesystem::exists(path));
    writer.finish();
  }
  CHECK_FALSE(std::filesystem::exists(path + ".tmp"));
  std::vector<float> whole(35), part(11), tail(3);
  load_weights(path, {entry("b", {7}, tail, 4), entry("a", {5, 7}, whole)});
  CHECK(whole == a);
  CHECK(tail == counted(3, 104));
  load_weights(path, {entry("a", {5, 7}, part, 13), entry("b", {7}, none, 7)});
  CHECK(part == counted(11, 13));
}

TEST_CASE("a file that the Python package wrote fits the model it was made for") {
  // tests/golden/gptlite: 2 layers, 24 channels, 37 characters, 13 places.
  const std::string path =
      std::string(DSTRAIN_SOURCE_DIR) + "/tests/golden/gptlite/init.safetensors";
  const SafetensorsHeader header = read_safetensors_header(InputFile(path, "weights file"));
  REQUIRE(header.find("blocks.1.attn.qkv.weight"));
  CHECK(header.find("blocks.1.attn.qkv.weight")->shape == std::vector<int64_t>{72, 24});
  CHECK(header.find("token_embedding_table.weight")->shape == std::vector<int64_t>{37, 24});
  StateRegister want;
  for (const SafetensorsTensor& t : header.tensors) {
    Shape shape;
    for (const int64_t dim : t.shape) shape.append(dim);
    want.push_back({.name = t.name, .global_shape = shape});
  }
  check_weights(path, want);
  std::vector<float> ones(24);
  want.clear();
  want.push_back(entry("ln.weight", {24}, ones));
  CHECK_THAT(load_error(path, want),
             Contains("blocks.0.attn.qkv.weight (72, 24) is not in the model"));
}

TEST_CASE("finish insists on every element, and without it the old file stands") {
  TempDir dir;
  const std::string path = dir.write("model.safetensors", "old");
  std::vector<float> a = counted(6);
  {
    WeightsWriter writer(path, {entry("a", {2, 3}, a)});
    writer.write("a", 0, {a.data(), {5}, DType::f32});
    CHECK_THROWS_WITH(writer.finish(), Contains("5 of 6 elements of a"));
    CHECK_THROWS_AS(writer.write("b", 0, view(a)), InternalError);
    CHECK_THROWS_AS(writer.write("a", 1, view(a)), InternalError);
  }
  CHECK(bytes_of_file(path) == "old");
  CHECK_FALSE(std::filesystem::exists(path + ".tmp"));
}

TEST_CASE("a full disk while writing weights leaves the old file and no other") {
  TempDir dir;
  const std::string path = dir.write("model.safetensors", "old");
  std::vector<float> a = counted(50'000);
  {
    FileSizeLimit limit(100'000);
    WeightsWriter writer(path, {entry("a", {50'000}, a)});
    CHECK_THROWS_WITH(writer.write("a", 0, view(a)), Contains("model.safetensors.tmp") &&
                                                         Contains("at offset 100000 ") &&
                                                         Contains("File too large"));
  }
  CHECK(bytes_of_file(path) == "old");
  CHECK_FALSE(std::filesystem::exists(path + ".tmp"));
}

TEST_CASE("16-bit tensors are widened exactly, every bit pattern of a number") {
  TempDir dir;
  std::vector<uint16_t> bits;
  for (uint32_t b = 0; b < 65536; ++b)  // 1 as an exponent's lowest bit: finite in both formats
    bits.push_back(static_cast<uint16_t>((b & 0x7c00) == 0x7c00 ? b & ~uint32_t{0x0400} : b));
  // Longer than the conversion buffer, and a slice from the middle.
  for (int i = 0; i < 4; ++i) bits.insert(bits.end(), bits.begin(), bits.begin() + 65536);
  std::vector<float> values(bits.size() - 3);
  const Shape shape = {static_cast<int64_t>(bits.size())};
  load_weights(dir.write("b.safetensors", file_of("BF16", bits)), {entry("x", shape, values, 3)});
  for (size_t i = 0; i < values.size(); ++i)
    REQUIRE(std::bit_cast<uint32_t>(values[i]) == uint32_t{bits[i + 3]} << 16);
  load_weights(dir.write("h.safetensors", file_of("F16", bits)), {entry("x", shape, values, 3)});
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t h = bits[i + 3];
    const int exponent = (h >> 10) & 31, mantissa = h & 1023;
    float expected = std::ldexp(static_cast<float>(exponent ? 1024 + mantissa : mantissa),
                                (exponent ? exponent : 1) - 25);
    if (exponent == 31)
      expected = mantissa ? std::nanf("") : std::numeric_limits<float>::infinity();
    if (h & 0x8000) expected = -expected;
    if (std::isnan(expected))
      REQUIRE(std::isnan(values[i]));
    else
      REQUIRE(values[i] == expected);
  }
}

TEST_CASE("all mismatches are listed at once: missing, superfluous, shape, dtype") {
  TempDir dir;
  const std::string path = dir / "w.safetensors";
  std::vector<float> a = counted(6), b = counted(4), c = counted(2);
  WeightsWriter writer(path, {entry("a", {2, 3}, a), entry("extra", {4}, b)});
  writer.write("a", 0, view(a));
  writer.write("extra", 0, view(b));
  writer.finish();
  CHECK_THAT(load_error(path, {entry("a", {3, 2}, a), entry("lost", {2}, c)}),
             Contains(path) && Contains("mismatches: 3") &&
                 Contains("a has shape (2, 3), expected (3, 2)") &&
                 Contains("lost (2) is missing") && Contains("extra (4) is not in the model"));
  CHECK_THROWS_WITH(check_weights(path, {{.name = "a", .global_shape = {2, 3}}}),
                    Contains("extra (4) is not in the model"));
  check_weights(path,
                {{.name = "a", .global_shape = {2, 3}}, {.name = "extra", .global_shape = {4}}});
  std::vector<SafetensorsTensor> ints = {{.name = "x", .type = {"I32", 4}, .shape = {2}}};
  const std::string odd =
      dir.write("i.safetensors", make_safetensors_header(ints) + std::string(8, '\0'));
  CHECK_THAT(load_error(odd, {entry("x", {2}, c)}),
             Contains("x is I32, expected F32, F16 or BF16"));
}

TEST_CASE("rows that a file lacks of a table are the mean of its rows, in any slice") {
  TempDir dir;
  const std::string path = dir / "model.safetensors";
  std::vector<float> table{1, 2, 3, 5, 8, 13}, other = counted(4);  // 3 rows of 2
  {
    WeightsWriter writer(path, {entry("table", {3, 2}, table), entry("other", {4}, other)});
    writer.write("table", 0, view(table));
    writer.write("other", 0, view(other));
    writer.finish();
  }
  ForeignNames names;
  names.grown = {.tensors = {"table", "head"}, .rows = 3};
  std::vector<float> rest(4), expected = table;
  for (int row = 0; row < 2; ++row) {
    expected.push_back(4);
    expected.push_back(static_cast<float>(20.0 / 3));
  }
  for (int64_t begin = 0; begin < 10; ++begin)
    for (int64_t end = begin; end <= 10; ++end) {
      CAPTURE(begin, end);
      std::vector<float> slice(static_cast<size_t>(end - begin));
      load_weights(path, {entry("table", {5, 2}, slice, begin), entry("other", {4}, rest)}, names);
      CHECK(std::equal(slice.begin(), slice.end(), expected.begin() + begin));
    }
  CHECK(rest == other);
  // Other tensors, and files with another number of rows, have the shapes that are asked for.
  std::vector<float> grown(10), five(5);
  CHECK_THROWS_WITH(
      load_weights(path, {entry("table", {5, 2}, grown), entry("other", {5}, five)}, names),
      Contains("other has shape (4), expected (5)") && !Contains("table"));
  names.grown.rows = 4;
  CHECK_THROWS_WITH(
      load_weights(path, {entry("table", {5, 2}, grown), entry("other", {4}, rest)}, names),
      Contains("table has shape (3, 2), expected (5, 2)"));
}

TEST_CASE("a fresh tensor that a file lacks keeps its values") {
  TempDir dir;
  WeightsWriter(dir / "w.safetensors", {}).finish();
  std::vector<float> fresh{3, 4};
  load_weights(dir / "w.safetensors", {entry("b", {2}, fresh)}, {.fresh = {"b"}});
  CHECK(fresh == std::vector<float>{3, 4});
}

TEST_CASE("a weight that is no number is named with its file, not left for the first step") {
  TempDir dir;
  for (const auto& [bits, what] :
       {std::pair{uint16_t{0x7fc0}, "not a number"}, {uint16_t{0xff80}, "infinite"}}) {
    std::vector<SafetensorsTensor> tensors = {{.name = "a", .type = {"BF16", 2}, .shape = {6}}};
    std::vector<uint16_t> values(6, 0x3f80);
    values[4] = bits;
    const std::string path = dir.write(
        "w.safetensors", make_safetensors_header(tensors) +
                             std::string(reinterpret_cast<const char*>(values.data()), 12));
    std::vector<float> all(6);
    CHECK_THAT(load_error(path, {entry("a", {6}, all)}),
               Contains(fmt::format("w.safetensors are damaged: element 4 of a is {}", what)));
  }
}

TEST_CASE("a long list of mismatches is cut, and says how many more there are") {
  TempDir dir;
  const std::string path = dir / "w.safetensors";
  WeightsWriter(path, {}).finish();
  StateRegister want;
  for (int i = 0; i < 50; ++i) want.push_back({.name = fmt::format("p{}", i), .global_shape = {1}});
  CHECK_THAT(load_error(path, want), Contains("mismatches: 50") && Contains("p4 (1)") &&
                                         Contains("and 45 more") && !Contains("p5 "));
}

TEST_CASE("a directory stands for the model.safetensors in it; what else it may hold is named") {
  const TempDir dir;
  const std::string holds_none =
      "--init_weights " + dir.path() + ": the directory holds no model.safetensors; ";
  CHECK(weights_file(dir / "x.safetensors") == dir / "x.safetensors");
  CHECK_THROWS_WITH(
      weights_file(dir.path()),
      holds_none + "name a file of weights, or the output directory of a finished run");
  dir.write("model.safetensors.index.json", "{}");
  CHECK_THROWS_WITH(weights_file(dir.path()),
                    holds_none + "its weights are divided over several files: --model " +
                        dir.path() + " takes them");
  dir.write("manifest.json", "{}");
  CHECK_THROWS_WITH(weights_file(dir.path()),
                    holds_none + "it is a checkpoint: --resume goes on from it");
  CHECK_THROWS_AS(weights_file(dir.path()), UserError);
  dir.write("model.safetensors", "");
  CHECK(weights_file(dir.path()) == dir / "model.safetensors");
  CHECK(weights_file(dir / "") == dir / "model.safetensors");
}

TEST_CASE("weights are read in the order in which their files have them") {
  const TempDir dir;
  const auto write = [&dir](const std::string& name, std::vector<std::string> tensors) {
    std::vector<float> values = counted(2);
    StateRegister weights;
    for (const std::string& tensor : tensors) weights.push_back(entry(tensor, {2}, values));
    WeightsWriter writer(dir / name, weights);
    for (const std::string& tensor : tensors) writer.write(tensor, 0, view(values));
    writer.finish();
  };
  write("m-1.safetensors", {"d", "b"});
  write("m-2.safetensors", {"c", "a"});
  const std::string index =
      dir.write("m.safetensors.index.json",
                R"({"weight_map": {"a": "m-2.safetensors", "b": "m-1.safetensors",
                                   "c": "m-2.safetensors", "d": "m-1.safetensors"}})");
  StateRegister weights;
  for (const char* name : {"a", "b", "c", "d"})
    weights.push_back({.name = name, .global_shape = {2}});
  CHECK(WeightsReader(index, weights).in_file_order() == std::vector<size_t>{3, 1, 2, 0});
}

TEST_CASE("a missing, cut or foreign weight file is named") {
  TempDir dir;
  std::vector<float> a = counted(6);
  CHECK_THAT(load_error(dir / "none.safetensors", {}),
             Contains("none.safetensors") && Contains("No such file"));
  CHECK_THAT(load_error(dir.write("x.txt", "a text file, not weights"), {}),
             Contains("x.txt is not a safetensors file"));
  const std::string path = dir / "w.safetensors";
  WeightsWriter writer(path, {entry("a", {6}, a)});
  writer.write("a", 0, view(a));
  writer.finish();
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  CHECK_THAT(load_error(path, {entry("a", {6}, a)}),
             Contains(path) && Contains("\"a\"") && Contains("cut short"));
}

}  // namespace
}  // namespace dstrain
