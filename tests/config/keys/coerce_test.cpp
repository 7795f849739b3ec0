#include "runtime/config/keys/table/coerce.h"

#include <catch2/catch.hpp>

#include "runtime/config/json/reader.h"

using namespace dstrain;

namespace {
Node value(const char* text) {
  return read_value(text, Source::file);
}
}  // namespace

TEST_CASE("coerce: integers may be written as whole floats, as DeepSpeed reads them") {
  CHECK(to_integer(value("5e8")) == 500000000);
  CHECK(to_integer(value("1e12")) == 1000000000000);
  CHECK(to_integer(value("2.0")) == 2);
  CHECK(to_integer(value("20000000000000000")) == 20000000000000000);
  CHECK(to_integer(value("1.5")) == std::nullopt);
  CHECK(to_integer(value("1e19")) == std::nullopt);
  CHECK(to_integer(value("\"500\"")) == 500);
  CHECK(to_integer(value("\"5e8\"")) == std::nullopt);
  CHECK(to_integer(value("\"500\""), false) == std::nullopt);
  CHECK(to_integer(value("true")) == 1);
  CHECK(to_integer(value("true"), false) == std::nullopt);
}

TEST_CASE("coerce: an integer that does not fit into 64 bits is told the limit") {
  const KeySpec seed{.key = "dstrain.seed", .type = Type::integer, .min = 0};
  CHECK(type_error(seed, value("9223372036854775807")).empty());
  CHECK(type_error(seed, value("1e19")) ==
        "expected an integer from 0 to 9223372036854775807, found 1e+19");
  CHECK(type_error(seed, value("-1")) == "expected an integer of at least 0, found -1");
}

TEST_CASE("coerce: booleans and reals may be quoted in the sections that DeepSpeed validates") {
  for (const char* yes : {"true", "1", "1.0", "\"true\"", "\"True\"", "\"1\"", "\"on\""})
    CHECK(to_boolean(value(yes)) == true);
  for (const char* no : {"false", "0", "\"false\"", "\"off\""})
    CHECK(to_boolean(value(no)) == false);
  for (const char* neither : {"2", "null", "\"maybe\"", "[]"})
    CHECK(to_boolean(value(neither)) == std::nullopt);
  CHECK(to_boolean(value("\"true\""), false) == std::nullopt);
  CHECK(to_real(value("\"0.5\"")) == 0.5);
  CHECK(to_real(value("\"0.5\""), false) == std::nullopt);
  CHECK(to_real(value("1")) == 1.0);
  CHECK(takes_quoted("zero_optimization.stage"));
  CHECK(takes_quoted("fp16.enabled"));
  CHECK_FALSE(takes_quoted("train_batch_size"));
  CHECK_FALSE(takes_quoted("optimizer.params.lr"));
}

TEST_CASE("coerce: a wrong value says what was expected, what came, and what to write") {
  const KeySpec count{.key = "a", .type = Type::integer, .fallback = "1", .min = 1};
  const KeySpec bounded{.key = "a", .type = Type::integer, .fallback = "1", .min = 0, .max = 3};
  const KeySpec fraction{
      .key = "a", .type = Type::real, .fallback = "0", .min = 0, .max = 1, .open = true};
  const KeySpec positive{.key = "a", .type = Type::real, .fallback = "1", .min = 0, .open = true};
  const KeySpec flag{.key = "a", .fallback = "false"};
  const KeySpec choice{
      .key = "a", .type = Type::choice, .fallback = "\"relu\"", .choices = "relu|gelu"};
  const KeySpec betas{
      .key = "a", .type = Type::betas, .fallback = "[0, 0]", .min = 0, .max = 1, .open = true};
  const KeySpec names{.key = "a", .type = Type::strings, .fallback = "[]"};
  const KeySpec section{.key = "a", .type = Type::section};
  CHECK(type_error(count, value("0")) == "expected an integer of at least 1, found 0");
  CHECK(type_error(count, value("1.5")) == "expected an integer of at least 1, found 1.5");
  CHECK(type_error(count, value("\"8\"")) ==
        "expected an integer of at least 1, found \"8\": write 8 without quotes");
  CHECK(type_error(count, value("null")) ==
        "expected an integer of at least 1, found null: remove the key for the default");
  CHECK(type_error(bounded, value("4")) == "expected an integer from 0 to 3, found 4");
  CHECK(type_error(fraction, value("1")) == "expected a number from 0 to below 1, found 1");
  CHECK(type_error(fraction, value("0")).empty());
  CHECK(type_error(positive, value("0")) == "expected a number above 0, found 0");
  CHECK(type_error(flag, value("\"True\"")) ==
        "expected true or false, found \"True\": write true without quotes");
  CHECK(type_error(count, value("\"0\"")) == "expected an integer of at least 1, found \"0\"");
  CHECK(type_error(betas, value("[\"0.9\", \"0.5\"]")) ==
        "expected a list of two numbers from 0 to below 1, found [\"0.9\", \"0.5\"]: write [0.9, "
        "0.5] "
        "without quotes");
  CHECK(type_error(flag, value("[false]")) == "expected true or false, found [false]");
  CHECK(type_error(choice, value("\"gulu\"")) ==
        "expected one of \"relu\", \"gelu\", found \"gulu\" (did you mean \"gelu\"?)");
  CHECK(type_error(choice, value("\"ReLU\"")).empty());
  CHECK(type_error(betas, value("[0.9, 1.0]")) ==
        "expected a list of two numbers from 0 to below 1, found [0.9, 1]");
  CHECK(type_error(betas, value("[0.9]")) ==
        "expected a list of two numbers from 0 to below 1, found [0.9]");
  CHECK(type_error(names, value("[1]")) == "expected a list of strings, found [1]");
  CHECK(type_error(names, value("[1, 2, 3, 4, 5]")) == "expected a list of strings, found a list");
  CHECK(type_error(section, value("5")) == "expected a section { }, found 5");
  CHECK(type_error(section, value("null")) ==
        "expected a section { }, found null: remove the key for the default");
  CHECK(type_error(flag, value("{}")) == "expected true or false, found a section { }");
}

TEST_CASE("coerce: null stands for a key that has no default") {
  const KeySpec unset{.key = "a", .type = Type::string};
  const KeySpec nullable{.key = "a", .fallback = "false", .nullable = true};
  CHECK(type_error(unset, value("null")).empty());
  CHECK(type_error(nullable, value("null")).empty());
}
