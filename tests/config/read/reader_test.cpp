#include "runtime/config/json/reader.h"

#include <catch2/catch.hpp>
#include <string>

#include "runtime/core/error.h"
#include "tests/config/config_fixture.h"

using namespace dstrain;

namespace {

std::string read(const std::string& text) {
  return json_text(read_config(text, Source::file));
}

std::string error_of(const std::string& text) {
  try {
    read_config(text, Source::file);
  } catch (const SyntaxError& e) {
    return std::to_string(e.line) + ":" + std::to_string(e.column) + ": " + e.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("reader: takes JSON and what people add to it") {
  const auto [text, meaning] = GENERATE(table<std::string, std::string>({
      {"{}", "{}"},
      {R"({"a": 1, "b": [true, false, null, "x"]})", R"({"a": 1, "b": [true, false, null, "x"]})"},
      {"{\"a\": 1, // one\n \"b\": 2 /* two\n lines */, # three\n \"c\": 3}",
       R"({"a": 1, "b": 2, "c": 3})"},
      {R"({"a": [1, 2,], "b": {"c": 1,},})", R"({"a": [1, 2], "b": {"c": 1}})"},
      {"{\"a\": 1\n \"b\": [1\n2]\n}", R"({"a": 1, "b": [1, 2]})"},
      {"{\"a\": 1 // no comma\n \"b\": 2}", R"({"a": 1, "b": 2})"},
      {"{\"a\": 1 /* a line\n ends here */ \"b\": 2}", R"({"a": 1, "b": 2})"},
      {"{\r\n\"a\": 1,\r\n\"b\": 2\r\n}\r\n", R"({"a": 1, "b": 2})"},
      {"\xef\xbb\xbf{\"a\": 1}", R"({"a": 1})"},
      {"// no braces\n\"a\": 1,\n\"b\": {\"c\": 2}\n", R"({"a": 1, "b": {"c": 2}})"},
      {R"({"a": null# why
})",
       R"({"a": null})"},
      {R"({"a": true// why
, "b": 1# why
})",
       R"({"a": true, "b": 1})"},
      {R"({"t": "\"\\\/\b\f\n\r\tA\u00e9\ud83d\ude00"})",
       "{\"t\": \"\\\"\\\\/\\b\\f\\n\\r\\tA\xc3\xa9\xf0\x9f\x98\x80\"}"},
      {"{\"\xe4\xbd\xbf\": \"tab\there\"}", "{\"\xe4\xbd\xbf\": \"tab\\there\"}"},
  }));
  CHECK(read(text) == meaning);
}

TEST_CASE("reader: integers are exact, numbers with point or exponent are doubles") {
  const Node root = read_config(
      R"({"max": 9223372036854775807, "min": -9223372036854775808, "zero": -0, "e": 5e8,
          "f": 0.1, "g": -1.5E-3, "h": 1e+2})",
      Source::file);
  CHECK(root.member("max")->value.integer == INT64_MAX);
  CHECK(root.member("min")->value.integer == INT64_MIN);
  CHECK(root.member("zero")->value.is(Node::Kind::integer));
  CHECK(root.member("e")->value.is(Node::Kind::real));
  CHECK(root.member("e")->value.real == 5e8);
  CHECK(root.member("f")->value.real == 0.1);
  CHECK(root.member("g")->value.real == -1.5e-3);
  CHECK(root.member("h")->value.real == 100);
}

TEST_CASE("reader: places count lines and characters from one") {
  const Node root =
      read_config("\xef\xbb\xbf{\n  \"\xc3\xa9\": 1, \"b\":\t[1,\r\n 22]\n}", Source::file);
  const Member& b = *root.member("b");
  CHECK(b.place.line == 2);
  CHECK(b.place.column == 11);
  CHECK(b.value.place.column == 16);
  CHECK(b.value.items[1].place.line == 3);
  CHECK(b.value.items[1].place.column == 2);
}

TEST_CASE("reader: a key that is given twice knows its first place") {
  const Node root = read_config("{\"a\": 1,\n \"a\": 2}", Source::file);
  CHECK(root.members[0].first.line == 0);
  CHECK(root.members[1].first.line == 1);
  CHECK(root.members[1].first.column == 2);
}

TEST_CASE("reader: every malformed text is one error with a place") {
  const auto [text, error] = GENERATE(table<std::string, std::string>({
      {"", "1:1: expected '{' at the start of the configuration, found the end of the text"},
      {"  \n # nothing\n",
       "3:1: expected '{' at the start of the configuration, found the end of the text"},
      {"[1]", "1:1: expected '{' at the start of the configuration, found '['"},
      {"\x01", "1:1: expected '{' at the start of the configuration, found the byte 0x01"},
      {"{", "1:2: the '{' of line 1, column 1 is not closed: expected '}'"},
      {"{\"a\": 1", "1:8: the '{' of line 1, column 1 is not closed: expected '}'"},
      {"{\"a\": 1,", "1:9: the '{' of line 1, column 1 is not closed: expected '}'"},
      {"{\"a\": [1", "1:9: the '[' of line 1, column 7 is not closed: expected ']'"},
      {"{\"a\": [1,", "1:10: expected a value, found the end of the text"},
      {"{\"a\": [1}", "1:9: expected ',' or ']', found '}'"},
      {"{\"a\": [1\n}", "2:1: expected ',' or ']', found '}'"},
      {"{\"a\": {\"b\": 1]", "1:14: expected ',' or '}', found ']'"},
      {"{\"a\": 1 \"b\": 2}", "1:9: expected ',' or '}', found '\"'"},
      {"{\"a\": 1,,}", "1:9: expected a key after ',', found another ','"},
      {"{\"a\": [1,,2]}", "1:10: expected a value after ',', found another ','"},
      {"{,}", "1:2: expected a key in double quotes, found ','"},
      {"{\"a\" 1}", "1:6: expected ':' after the key \"a\", found '1'"},
      {"{\"a\":}", "1:6: expected a value, found '}'"},
      {"{\"a\": , \"b\": 1}", "1:7: expected a value, found ','"},
      {"{a: 1}", "1:2: expected a key in double quotes, found 'a': write \"a\""},
      {"{'a': 1}", "1:2: expected a key in double quotes, found single quotes"},
      {"{\"a\": 'x'}", "1:7: expected a string in double quotes, found single quotes"},
      {"{\"a\": True}", "1:7: 'True' is not JSON: write true"},
      {"{\"a\": FALSE}", "1:7: 'FALSE' is not JSON: write false"},
      {"{\"a\": None}", "1:7: 'None' is not JSON: write null"},
      {"{\"a\": Null}", "1:7: 'Null' is not JSON: write null"},
      {"{\"a\": NaN}", "1:7: 'NaN' is not a number a configuration can hold: write a finite one"},
      {"{\"a\": Infinity}",
       "1:7: 'Infinity' is not a number a configuration can hold: write a finite one"},
      {"{\"a\": -Infinity}",
       "1:7: '-Infinity' is not a number a configuration can hold: write a finite one"},
      {"{\"a\": +5}", "1:7: '+5': write the number without '+'"},
      {"{\"a\": .5}", "1:7: '.5': write a digit before the point"},
      {"{\"a\": 01}", "1:7: '01' has a leading zero: remove it"},
      {"{\"a\": 1.}", "1:7: '1.' is not a number; write text in double quotes"},
      {"{\"a\": 12abc}", "1:7: '12abc' is not a number; write text in double quotes"},
      {"{\"a\": -}", "1:7: '-' is not a number; write text in double quotes"},
      {"{\"a\": 0x10}", "1:7: '0x10' is not a number; write text in double quotes"},
      {"{\"a\": /data/x}", "1:7: expected a value, found '/data/x': write text in double quotes"},
      {"{\"a\": 1e999}", "1:7: the number 1e999 is outside the range of a double"},
      {"{\"a\": \"x}", "1:7: this string is not closed on its line: expected '\"'"},
      {"{\"a\": \"x\ny\"}", "1:7: this string is not closed on its line: expected '\"'"},
      {"{\"a\": \"\x01\"}", "1:8: the control character 0x01 in a string: write \\u0001"},
      {"{\"a\": \"\\q\"}", "1:8: unknown escape in a string: a backslash itself is written \\\\"},
      {"{\"a\": \"\\u12g4\"}", "1:10: expected four hexadecimal digits after \\u"},
      {"{\"a\": \"\\ud800\"}", "1:8: half of a surrogate pair in a string"},
      {"{\"a\": \"\\ud800\\u0041\"}", "1:8: half of a surrogate pair in a string"},
      {"{\"a\": \"\\udc00\"}", "1:8: half of a surrogate pair in a string"},
      {"{\"a\": 1 /* x}", "1:9: this comment is never closed: expected '*/'"},
      {"{} x", "1:4: expected nothing after the configuration, found 'x'"},
      {"{}}", "1:3: this '}' closes nothing: remove it, or put its '{' at the start"},
      {"\"a\": 1\n}", "2:1: this '}' closes nothing: put '{' at the start of the configuration"},
      {"\"a\": 1 2", "1:8: expected ',' or a new line, found '2'"},
      {"{\"a\": \"\xff\"}", "1:8: the byte 0xff is not UTF-8: save the file as UTF-8"},
      {"{} // \xc3", "1:7: the byte 0xc3 is not UTF-8: save the file as UTF-8"},
  }));
  CHECK(error_of(text) == error);
}

TEST_CASE("reader: nesting and length have limits") {
  const std::string deep = "{\"a\": " + std::string(100000, '[');
  CHECK(error_of(deep) == "1:71: nested deeper than 64 levels");
  const std::string fits = "{\"a\": " + std::string(63, '[') + std::string(63, ']') + "}";
  CHECK(error_of(fits) == "no error");
  const std::string blank(kMaxConfigBytes + 1, ' ');
  CHECK(error_of(blank) == "1:1: the text has 1048577 bytes; a configuration has at most 1048576");
}

TEST_CASE("reader: a long line of values is read in linear time") {
  std::string text = "{\"a\": [";
  for (int i = 0; i < 200000; ++i) text += "1, ";
  CHECK(read_config(text + "]}", Source::file).member("a")->value.items.size() == 200000);
}

TEST_CASE("reader: values of --set may be of any kind") {
  CHECK(json_text(read_value("[0.9, 0.95]", Source::set)) == "[0.9, 0.95]");
  CHECK(json_text(read_value(" 5e8 ", Source::set)) == "5e+08");
  CHECK_THROWS_WITH(read_value("1 2", Source::set), "expected nothing after the value, found '2'");
}
