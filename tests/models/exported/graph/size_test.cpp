#include "models/exported/graph/size.h"

#include <catch2/catch.hpp>
#include <limits>

#include "runtime/core/error.h"

namespace dstrain::exported {
namespace {

using Catch::Contains;

constexpr const char* kS = "Symbol('s27', positive=True, integer=True)";

TEST_CASE("a size is read from sympy's text and has a value once its symbols have") {
  const Size size = parse_size(std::string("Add(Mul(Integer(8), ") + kS +
                               "), Pow(Symbol(\"t\"), Integer(2)), Integer(-1))");
  CHECK_FALSE(size.is_fixed());
  CHECK(to_string(size) == "8*s27 + t**2 + -1");
  CHECK(size.value_with({{"s27", 3}, {"t", 5}}) == 48);
  CHECK(size.value_with({{"s27", 3}}) == std::nullopt);
  std::set<std::string> symbols;
  size.add_symbols(symbols);
  CHECK(symbols == std::set<std::string>{"s27", "t"});
  CHECK_THROWS_AS(size.value(), InternalError);
  CHECK(parse_size(kS) == parse_size("Symbol('s27')"));
  CHECK_FALSE(parse_size(kS) == size);
  CHECK_FALSE(parse_size(kS) == Size(3));
}

TEST_CASE("a size without symbols is its value") {
  CHECK(parse_size("Integer(7)") == Size(7));
  CHECK(parse_size("Mul(Integer(7), Add(Integer(1), Integer(2)))").value() == 21);
  CHECK(parse_size("Pow(Integer(7), Integer(0))").value() == 1);
  CHECK(Size(5).value_with({}) == 5);
}

TEST_CASE("a size that overflows has no value") {
  const int64_t large = std::numeric_limits<int64_t>::max();
  CHECK(parse_size("Add(Symbol('s'), Integer(1))").value_with({{"s", large}}) == std::nullopt);
  CHECK(parse_size("Mul(Symbol('s'), Integer(2))").value_with({{"s", large / 2 + 1}}) ==
        std::nullopt);
  CHECK(parse_size("Pow(Symbol('s'), Integer(64))").value_with({{"s", 2}}) == std::nullopt);
  CHECK_THROWS_WITH(parse_size("Mul(Integer(9223372036854775807), Integer(2))"),
                    Contains("does not fit into 64 bits"));
}

TEST_CASE("a size that is no sum, product or power is refused by its name") {
  CHECK_THROWS_WITH(parse_size(std::string("FloorDiv(") + kS + ", Integer(2))"),
                    Contains("has the function FloorDiv, expected sums"));
  for (const char* text : {"",
                           "(",
                           "Mul",
                           "Mul(",
                           "Mul()",
                           "Mul(Integer(2)",
                           "Mul(Integer(2),)",
                           "Integer(2))",
                           "Integer()",
                           "Integer(2.5)",
                           "Integer(99999999999999999999)",
                           "Symbol()",
                           "Symbol('')",
                           "Symbol('s",
                           "Symbol('s)",
                           "Symbol('a b')",
                           "Pow(Integer(2), Symbol('s'))",
                           "Pow(Integer(2), Integer(-1))",
                           "Pow(Integer(2))",
                           "Pow(Symbol('s'), Integer(65))",
                           "Integer(2) Integer(3)",
                           "Rational(1, 2)"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(parse_size(text), UserError);
  }
  std::string deep;
  for (int i = 0; i < 1000; ++i) deep += "Mul(";
  CHECK_THROWS_WITH(parse_size(deep), Contains("nested more than 32 deep"));
  CHECK_THROWS_WITH(parse_size(std::string(20'000, 'M')), Contains("longer than 10000 bytes"));
}

}  // namespace
}  // namespace dstrain::exported
