// Valid, damaged and hostile headers.
#include "runtime/core/formats/safetensors.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "runtime/core/error.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

using Catch::Contains;

SafetensorsHeader parse(std::string_view json, int64_t data_bytes) {
  return parse_safetensors(json, 8 + static_cast<int64_t>(json.size()) + data_bytes,
                           "x.safetensors");
}

std::string parse_error(std::string_view json, int64_t data_bytes = 0) {
  try {
    parse(json, data_bytes);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

std::string tensor(std::string_view name, std::string_view dtype, std::string_view shape,
                   std::string_view offsets) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, dtype, shape,
                     offsets);
}

std::string object(std::initializer_list<std::string> members) {
  return fmt::format("{{{}}}", fmt::join(members, ","));
}

TEST_CASE("a header is read: names, dtypes, shapes, places, metadata, in the order of the bytes") {
  const std::string json =
      object({tensor("b", "BF16", "[3]", "[24,30]"), R"("__metadata__":{"format":"pt","k":"v"})",
              tensor("a", "F32", "[2,3]", "[0,24]"), tensor("scalar", "F64", "[]", "[30,38]"),
              tensor("none", "I64", "[0,5]", "[38,38]")}) +
      "   ";
  const SafetensorsHeader header = parse(json, 38);
  REQUIRE(header.tensors.size() == 4);
  const int64_t data = 8 + static_cast<int64_t>(json.size());
  const SafetensorsTensor& a = header.tensors[0];
  CHECK((a.name == "a" && a.type.name == "F32" && a.type.bytes == 4));
  CHECK(a.shape == std::vector<int64_t>{2, 3});
  CHECK((a.begin == data && a.end == data + 24));
  CHECK(header.find("b") == &header.tensors[1]);
  CHECK(header.find("scalar")->shape.empty());
  CHECK(header.find("none")->begin == header.find("none")->end);
  CHECK(header.find("c") == nullptr);
  CHECK(header.metadata.at("k") == "v");
  CHECK(parse("{}", 0).tensors.empty());
}

TEST_CASE("what is made is read back the same") {
  std::vector<SafetensorsTensor> tensors = {
      {.name = "w \"x\"", .type = {"F32", 4}, .shape = {3, 5}},
      {.name = "empty", .type = {"F64", 8}, .shape = {0}},
      {.name = "one", .type = {"U8", 1}, .shape = {}}};
  const std::string head = make_safetensors_header(tensors);
  CHECK(head.size() % 8 == 0);
  const auto file_bytes = static_cast<int64_t>(head.size()) + 61;
  CHECK(safetensors_header_bytes(head.substr(0, 8), file_bytes, "x") ==
        static_cast<int64_t>(head.size()) - 8);
  const SafetensorsHeader header =
      parse_safetensors(std::string_view(head).substr(8), file_bytes, "x");
  REQUIRE(header.tensors.size() == 3);
  for (const SafetensorsTensor& made : tensors) {
    const SafetensorsTensor* read = header.find(made.name);
    REQUIRE(read);
    CHECK((read->begin == made.begin && read->end == made.end && read->shape == made.shape));
    CHECK(read->type.name == made.type.name);
  }
  CHECK(header.metadata.at("format") == "pt");
}

TEST_CASE("a length that the file does not bear out is refused before anything is allocated") {
  const auto error = [](std::string head, int64_t file_bytes) {
    head.resize(std::min<size_t>(8, head.size()));
    try {
      safetensors_header_bytes(head, file_bytes, "x.safetensors");
    } catch (const UserError& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  CHECK_THAT(error("1234567", 7), Contains("x.safetensors") && Contains("7 bytes"));
  CHECK_THAT(error("", 0), Contains("0 bytes"));
  CHECK_THAT(error(std::string("\x05\0\0\0\0\0\0\0", 8), 12),
             Contains("header of 5") && Contains("4 bytes follow"));
  CHECK_THAT(error(std::string("\xff\xff\xff\xff\xff\xff\xff\xff", 8), 1 << 20),
             Contains("at most 100000000"));
  CHECK_THAT(error(std::string("\x01\xe1\xf5\x05\0\0\0\0", 8), int64_t{1} << 40),
             Contains("100000001"));
  CHECK(error(std::string("\x05\0\0\0\0\0\0\0", 8), 13) == "no error");
}

TEST_CASE("places that overlap, leave holes or pass the end are refused, naming the tensor") {
  CHECK_THAT(
      parse_error(object({tensor("a", "F32", "[2]", "[0,8]"), tensor("b", "F32", "[2]", "[4,12]")}),
                  12),
      Contains("\"b\"") && Contains("overlaps"));
  CHECK_THAT(
      parse_error(object({tensor("a", "F32", "[2]", "[0,8]"), tensor("b", "F32", "[2]", "[0,8]")}),
                  8),
      Contains("overlaps"));
  CHECK_THAT(parse_error(object({tensor("a", "F32", "[2]", "[4,12]")}), 12),
             Contains("\"a\"") && Contains("4 bytes that belong to no tensor"));
  CHECK_THAT(parse_error(object({tensor("a", "F32", "[2]", "[0,8]")}), 7),
             Contains("\"a\"") && Contains("the file has 7") && Contains("cut short"));
  CHECK_THAT(parse_error(object({tensor("a", "F32", "[2]", "[0,8]")}), 9),
             Contains("last 1 bytes belong to no tensor"));
}

TEST_CASE("sizes must be what dtype and shape say, overflow included") {
  CHECK_THAT(parse_error(object({tensor("a", "F32", "[2]", "[0,4]")}), 4),
             Contains("\"a\"") && Contains("takes 8 bytes"));
  CHECK_THAT(parse_error(object({tensor("a", "F32", "[2]", "[8,0]")}), 8), Contains("[8, 0]"));
  CHECK_THAT(parse_error(object({tensor("a", "F32", "[4611686018427387904,4]", "[0,0]")})),
             Contains("overflows"));
  CHECK_THAT(parse_error(object({tensor("a", "F32", "[9223372036854775807,2,0]", "[0,0]")})),
             Contains("overflows"));
  CHECK_THAT(parse_error(object({tensor("a", "F32", "[18446744073709551615]", "[0,0]")})),
             Contains("too large"));
  CHECK_THAT(
      parse_error(object({tensor("a", "U8", "[1]", "[9223372036854775807,9223372036854775807]")})),
      Contains("takes 1 bytes"));
}

TEST_CASE("unknown dtypes, fields and kinds are refused, naming the tensor") {
  CHECK_THAT(parse_error(object({tensor("a", "F31", "[]", "[0,4]")}), 4),
             Contains("\"a\"") && Contains("unknown dtype \"F31\""));
  CHECK_THAT(parse_error(R"({"a":{"dtype":"F32","shape":[],"data_offsets":[0,4],"x":1}})", 4),
             Contains("\"x\""));
  CHECK_THAT(
      parse_error(R"({"a":{"dtype":"F32","dtype":"F32","shape":[],"data_offsets":[0,4]}})", 4),
      Contains("\"dtype\" twice"));
  CHECK_THAT(parse_error(R"({"a":{"dtype":"F32","shape":[]}})"),
             Contains("lacks its data_offsets"));
  CHECK_THAT(parse_error(R"({"a":{"shape":[],"data_offsets":[0,4]}})"),
             Contains("lacks its dtype"));
  CHECK_THAT(parse_error(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})"),
             Contains("lacks its shape"));
  CHECK_THAT(parse_error(R"({"a":{"dtype":"F32","shape":[],"data_offsets":[0]}})"),
             Contains("1 data_offsets"));
  CHECK_THAT(parse_error(R"({"a":{"dtype":4,"shape":[],"data_offsets":[0,4]}})"),
             Contains("holds a number"));
  CHECK_THAT(parse_error(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})"),
             Contains("a negative number"));
  CHECK_THAT(parse_error(R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})"),
             Contains("a fraction"));
  CHECK_THAT(parse_error(R"({"a":{"dtype":"F32","shape":[1e99],"data_offsets":[0,4]}})"),
             Contains("a fraction"));
  CHECK_THAT(parse_error(R"({"a":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})"),
             Contains("a list"));
  CHECK_THAT(parse_error(R"({"a":{"dtype":"F32","shape":{},"data_offsets":[0,4]}})"),
             Contains("an object"));
  CHECK_THAT(parse_error(R"({"a":null})"), Contains("\"a\"") && Contains("null"));
  CHECK_THAT(parse_error(R"({"a":[]})"), Contains("a list"));
  CHECK_THAT(parse_error(R"({"a":true})"), Contains("true or false"));
  std::string ones = "[1";
  for (int i = 0; i < 32; ++i) ones += ",1";
  CHECK_THAT(parse_error(object({tensor("a", "U8", ones + "]", "[0,1]")}), 1),
             Contains("more than 32 numbers"));
}

TEST_CASE("duplicate names are refused, also those that JSON readers overlook") {
  CHECK_THAT(
      parse_error(object({tensor("a", "U8", "[1]", "[0,1]"), tensor("b", "U8", "[1]", "[1,2]"),
                          tensor("a", "U8", "[1]", "[2,3]")}),
                  3),
      Contains("\"a\" occurs twice"));
  CHECK_THAT(parse_error(R"({"__metadata__":{},"__metadata__":{}})"),
             Contains("\"__metadata__\" occurs twice"));
  CHECK_THAT(parse_error(R"({"__metadata__":{"k":"1","k":"2"}})"), Contains("\"k\" twice"));
}

TEST_CASE("metadata is a table of texts") {
  CHECK_THAT(parse_error(R"({"__metadata__":{"k":1}})"),
             Contains("\"__metadata__\"") && Contains("expected a table of texts"));
  CHECK_THAT(parse_error(R"({"__metadata__":[]})"), Contains("a table of texts"));
  CHECK_THAT(parse_error(R"({"__metadata__":{"k":{}}})"), Contains("a table of texts"));
}

TEST_CASE("text that is not JSON, or not an object, is refused with its place") {
  CHECK_THAT(parse_error("hello"), Contains("not JSON, at byte"));
  CHECK_THAT(parse_error(""), Contains("not JSON"));
  CHECK_THAT(parse_error("{} x"), Contains("not JSON"));
  CHECK_THAT(parse_error(std::string("{}\0", 3)), Contains("not JSON"));
  CHECK_THAT(parse_error("{\"\xff\":{}}"), Contains("not JSON"));
  CHECK_THAT(parse_error("[]"), Contains("a list, not an object"));
  CHECK_THAT(parse_error("3"), Contains("a number, not an object"));
  CHECK_THAT(parse_error(std::string(1'000'000, '[')), Contains("a list"));
  CHECK_THAT(parse_error("{\"a\":{\"dtype\":\"F32\""), Contains("not JSON"));
}

TEST_CASE("names that would disturb a terminal are shown without control characters, and short") {
  const std::string message = parse_error("{\"a\\u001b[2J\\n\":null}");
  CHECK_THAT(message, Contains("\"a?[2J?\""));
  CHECK(parse_error("{\"" + std::string(100'000, 'n') + "\":null}").size() < 400);
}

TEST_CASE("a file is opened by its header, and a directory or a short file is refused") {
  TempDir dir;
  const std::string json = object({tensor("a", "U8", "[3]", "[0,3]")});
  std::string head(8, '\0');
  head[0] = static_cast<char>(json.size());
  const std::string good = dir.write("good.safetensors", head + json + "xyz");
  CHECK(read_safetensors_header(InputFile(good, "weights file")).tensors.size() == 1);
  const std::string shorter = dir.write("short.safetensors", head + json + "xy");
  CHECK_THROWS_WITH(read_safetensors_header(InputFile(shorter, "weights file")),
                    Contains("short.safetensors") && Contains("\"a\"") && Contains("cut short"));
  const std::string empty = dir.write("empty.safetensors", "");
  CHECK_THROWS_WITH(read_safetensors_header(InputFile(empty, "weights file")), Contains("0 bytes"));
}

}  // namespace
}  // namespace dstrain
