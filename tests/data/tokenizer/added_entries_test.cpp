#include "runtime/data/tokenizer/json/added_entries.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/core/error.h"
#include "tests/data/tokenizer/golden_files.h"

namespace dstrain {
namespace {

using nlohmann::json;
using Texts = std::vector<std::string>;

json parsed_with(const std::string& text, const Texts& tokens) {
  return json::parse(with_added_tokens(text, tokens, "t"));
}

TEST_CASE("added tokens have the ids behind the largest one, in order, each once") {
  const std::string file = golden_file("llama3.json");
  const json before = json::parse(file);
  const int64_t ids = ids_with(file, {});
  CHECK(ids == 606);
  const Texts tokens{"<|a|>", "quote \" and \\", "<|a|>"};
  CHECK(ids_with(file, tokens) == ids + 2);
  json after = parsed_with(file, tokens);
  json& list = after["added_tokens"];
  REQUIRE(list.size() == before["added_tokens"].size() + 2);
  const json last = list.back();
  CHECK(last == json{{"id", ids + 1},
                     {"content", tokens[1]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", false}});
  for (int i = 0; i < 2; ++i) list.erase(list.size() - 1);
  CHECK(after == before);
}

TEST_CASE("a text with an added token has its id, and other tokens are what they were") {
  const std::string file = golden_file("llama3.json");
  const Tokenizer before(file, "t");
  const Tokenizer after(with_added_tokens(file, Texts{"<|a|>"}, "t"), "t");
  std::vector<uint32_t> expected = before.encode("one two");
  expected.push_back(606);
  const std::vector<uint32_t> behind = before.encode(" three");
  expected.insert(expected.end(), behind.begin(), behind.end());
  CHECK(after.encode("one two<|a|> three") == expected);
  CHECK(after.bytes_of(606) == "<|a|>");
  CHECK_FALSE(after.is_special(606));
}

TEST_CASE("a token that the tokenizer has keeps its id, and an added one stays as it is") {
  const std::string file =
      R"({"model": {"vocab": {"a": 0, "b": 7}}, "added_tokens": [ {"id": 9, "content": "c", "special": true} ] })";
  CHECK(ids_with(file, {}) == 10);
  CHECK(ids_with(file, Texts{"b", "c", "d"}) == 11);
  const json list = parsed_with(file, {"b", "c", "d"})["added_tokens"];
  REQUIRE(list.size() == 3);
  CHECK(list[0] == json{{"id", 9}, {"content", "c"}, {"special", true}});
  CHECK(list[1]["id"] == 7);
  CHECK(list[2]["id"] == 10);
  CHECK(with_added_tokens(file, Texts{"c"}, "t") == file);
}

TEST_CASE("a file without added tokens, or with an empty list, gets them") {
  for (const std::string list : {"", R"("added_tokens": [], )", R"("added_tokens": [
  ], )"}) {
    CAPTURE(list);
    // Texts and lists elsewhere are none of the tokenizer's.
    const std::string file = "{" + list +
                             R"("x": ["added_tokens", ["]"]], "y": {"added_tokens": [1]},
        "model": {"vocab": {"added_tokens": 3, "]": 1}}})";
    const json after = parsed_with(file, {"new"});
    CHECK(after["added_tokens"].size() == 1);
    CHECK(after["added_tokens"][0]["id"] == 4);
    CHECK(after["y"]["added_tokens"] == json{1});
  }
}

TEST_CASE("what is no tokenizer has no ids, and takes no tokens") {
  for (const std::string text : {"", "{", "[1", "{\"model\": "}) {
    CAPTURE(text);
    CHECK(ids_with(text, {}) == 0);
    CHECK_THROWS_AS(with_added_tokens(text, Texts{"a"}, "t"), UserError);
  }
  CHECK(ids_with("[]", {}) == 0);
  CHECK(ids_with(R"({"model": {"vocab": [["a", 0.5], ["b", -1]]}})", {}) == 0);
  // Ids that no tokenizer may have.
  CHECK(ids_with(R"({"model": {"vocab": {"a": 18446744073709551615, "b": 3, "c": -4}}})", {}) == 4);
  CHECK(ids_with(std::string(1'000'000, '['), {}) == 0);
}

}  // namespace
}  // namespace dstrain
