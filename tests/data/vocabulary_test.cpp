#include "runtime/data/vocabulary.h"

#include <catch2/catch.hpp>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

using Catch::Contains;
using Ids = std::vector<int32_t>;

Vocabulary characters(std::vector<uint32_t> codes) {
  Vocabulary v{.format = DataFormat::characters, .characters = std::move(codes), .size = 0};
  v.size = static_cast<int64_t>(v.characters.size());
  return v;
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

std::string parse_error(std::string_view text) {
  return error_of([text] { parse_vocabulary(text, "vocab.json"); });
}

TEST_CASE("text goes to ids and back, characters of any length") {
  const Vocabulary v = characters({'\n', 'a', 0xe9, 0x20ac, 0x1f600});
  const std::string text = "a\n\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80";
  CHECK(v.encode(text) == Ids{1, 0, 2, 3, 4});
  std::string back;
  for (const int32_t id : v.encode(text)) back += v.decode(id);
  CHECK(back == text);
}

TEST_CASE("bytes go to ids and back") {
  const Vocabulary v{.format = DataFormat::bytes, .characters = {}, .size = 256};
  CHECK(v.encode("a\xff") == Ids{97, 255});
  CHECK(v.decode(255) == "\xff");
}

TEST_CASE("a character outside the vocabulary is named with its place") {
  const Vocabulary v = characters({'a', 'b'});
  CHECK_THAT(
      error_of([&] { v.encode("ab\xe2\x82\xac"); }),
      Contains("character 3") && Contains("\"\xe2\x82\xac\" (U+20AC)") && Contains("2 characters"));
  CHECK_THAT(error_of([&] { v.encode("\n"); }), Contains("character 1") && Contains("U+000A"));
  CHECK_THAT(error_of([&] { v.encode("ab\xff"); }), Contains("not UTF-8 at byte 2"));
}

TEST_CASE("token ids have no text: a prompt is refused, ids print as numbers") {
  const Vocabulary v{.format = DataFormat::tokens, .characters = {}, .size = 50257};
  CHECK_THAT(error_of([&] { v.encode("a"); }), Contains("--prompt_ids"));
  CHECK(v.decode(50256) == "50256");
  CHECK(v.decode(60000) == "60000");
}

TEST_CASE("ids that only a larger model knows are replacement characters") {
  CHECK(characters({'a', 'b'}).decode(2) == "\xef\xbf\xbd");
  const Vocabulary bytes{.format = DataFormat::bytes, .characters = {}, .size = 256};
  CHECK(bytes.decode(256) == "\xef\xbf\xbd");
  CHECK_THROWS_AS(bytes.decode(-1), InternalError);
}

TEST_CASE("vocab.json holds format, size and the characters, and reads back") {
  CHECK(vocabulary_json(characters({'\n', '"', 'a', 0x20ac})) ==
        "{\"format\":\"char\",\"size\":4,\"characters\":[\"\\n\",\"\\\"\",\"a\",\"\xe2\x82\xac\"]}"
        "\n");
  for (const Vocabulary& v :
       {characters({0, '\n', '"', '\\', 0x7f, 0xe9, 0x20ac, 0x10ffff}),
        Vocabulary{.format = DataFormat::bytes, .characters = {}, .size = 256},
        Vocabulary{.format = DataFormat::tokens, .characters = {}, .size = 50257}}) {
    const Vocabulary back = parse_vocabulary(vocabulary_json(v), "vocab.json");
    CHECK(back.format == v.format);
    CHECK(back.characters == v.characters);
    CHECK(back.size == v.size);
  }
}

TEST_CASE("a damaged vocab.json is refused with its name and the reason") {
  CHECK(parse_error("{\"format\": \"char\"") ==
        "vocab.json is not a vocabulary that dstrain wrote: it is no JSON at byte 18");
  CHECK(parse_error("[]") ==
        "vocab.json is not a vocabulary that dstrain wrote: expected \"format\", \"size\" and, for "
        "char, \"characters\"");
  CHECK_THAT(parse_error("{\"format\": \"word\", \"size\": 1}"),
             Contains("\"word\", expected char, byte or bin"));
  CHECK_THAT(parse_error("{\"format\": \"byte\", \"size\": 255}"), Contains("\"size\" is 255"));
  CHECK_THAT(parse_error("{\"format\": \"char\", \"size\": 3, \"characters\": [\"a\", \"b\"]}"),
             Contains("\"size\" is 3") && Contains("has 2"));
  CHECK_THAT(parse_error("{\"format\": \"char\", \"size\": 2, \"characters\": [\"b\", \"a\"]}"),
             Contains("item 1") && Contains("\"a\" (U+0061)") && Contains("out of order"));
  CHECK_THAT(parse_error("{\"format\": \"char\", \"size\": 1, \"characters\": [\"ab\"]}"),
             Contains("expected one character"));
  CHECK_THAT(parse_error("{\"format\": \"char\", \"size\": 1, \"characters\": [\"\"]}"),
             Contains("0 bytes"));
  CHECK_THAT(parse_error("{\"format\": \"char\", \"size\": 1, \"characters\": [7]}"),
             Contains("not a vocabulary"));
}

}  // namespace
}  // namespace dstrain
