#include "runtime/data/tokenizer/pieces/foreign_syntax.h"

#include <catch2/catch.hpp>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

using Catch::Matchers::Contains;

std::string translated(const std::string& expression) {
  return pcre2_expression(expression, "t");
}

TEST_CASE("foreign syntax: what both read alike stays as it is") {
  for (const char* const expression :
       {R"(\d{1,2}|[A-Za-z]+|[^A-Za-z\d]+)", R"(\p{L}+|\p{N}{1,3}?|^a$)", R"(\x{41}+|\x41?|\x7f)",
        R"((?i:'s|'t)|(?<name>a)(?=b)(?<!c)(?>d)(?#e))", R"([[:alpha:]^-]|[\]a]|\[|a{|{a})",
        R"(\\h|\\{2}|\(*)"})
    CHECK(translated(expression) == expression);
}

TEST_CASE("foreign syntax: hexadecimal digits and dots over lines are put into PCRE2's words") {
  CHECK(translated(R"(\h+\H)") == "[0-9a-fA-F]+[^0-9a-fA-F]");
  CHECK(translated(R"([\h.])") == "[0-9a-fA-F.]");
  CHECK(translated("(?m:.)(?mi-x)a") == "(?s:.)(?si-x)a");
}

TEST_CASE("foreign syntax: what PCRE2 reads otherwise is refused with its place") {
  for (const char* const part : {R"(\R)", R"(\X)", R"(\K)", R"(\N)", R"(\G)", R"(\v)", R"(\Q)",
                                 R"(\u)", R"(\xE9)", "(*", "{,3}", "{2}?", "{2}+", "{1,3}+"}) {
    INFO(part);
    const std::string expression = "ab" + std::string(part) + "c";
    CHECK_THROWS_WITH(translated(expression),
                      Contains(std::string("has '") + part + "' at offset 2"));
    CHECK_THROWS_AS(translated(expression), UserError);
  }
  CHECK_THROWS_WITH(translated("[a&&b]"), Contains("has '&&' at offset 2"));
  CHECK_THROWS_WITH(translated("[a[b]]"), Contains("has '[' at offset 2"));
  CHECK_THROWS_WITH(translated("[]a]"), Contains("has ']' at offset 1"));
  CHECK_THROWS_WITH(translated(R"([\H])"), Contains(R"(has '\H' at offset 1)"));
  CHECK_THROWS_WITH(translated("(?s:a)"), Contains("has 's' at offset 2"));
}

TEST_CASE("foreign syntax: expressions that end early are left to PCRE2") {
  for (const char* const expression : {"[", "[^", "[a", "[[:a", "(", "(?", "(?i", "{", "{1", R"(\)",
                                       R"(\p{)", R"(\x{4)", R"([\)", ""})
    CHECK(translated(expression) == expression);
}

}  // namespace
}  // namespace dstrain
