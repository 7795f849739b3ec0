#include "launcher/report/record/metrics_line.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <string>

namespace dstrain::report {
namespace {

using Values = std::map<std::string, double>;

// Returns the values of a line that must be one; NaN becomes -1000.
Values values_of(const std::string& text) {
  MetricNames names;
  MetricsLine line;
  CAPTURE(text);
  REQUIRE(read_metrics_line(text, names, line));
  Values values = {{"step", static_cast<double>(line.step)}};
  for (const auto& [name, value] : line.values)
    values[names.name(name)] = std::isnan(value) ? -1000 : value;
  return values;
}

bool is_line(const std::string& text) {
  MetricNames names;
  MetricsLine line;
  return read_metrics_line(text, names, line);
}

TEST_CASE("a line has the same values in the form of a run and in any other form of JSON") {
  const Values expected = {{"step", 7},         {"loss", 4.233272854317289}, {"lr", 1e-7},
                           {"skipped", 0},      {"grad_norm", -1000},        {"tokens", 1024},
                           {"losses/lm", -2.5}, {"codec_error/weights", 3},  {"on", 1}};
  CHECK(
      values_of(R"({"step":7,"loss":4.233272854317289,"lr":1e-07,"skipped":false,"grad_norm":null,)"
                R"("tokens":1024,"losses":{"lm":-2.5},"codec_error":{"weights":3},"on":true})") ==
      expected);
  CHECK(
      values_of(
          R"( { "loss" : 4.233272854317289, "lr":0.0000001, "\u0073kipped":false, "grad_norm":null,)"
          R"("tokens":1024.0,"losses":{"lm":-2.5},"codec_error" :{"weights":3},"on":true, "step":7} )") ==
      expected);
}

TEST_CASE("names are found in lines of any order, one after the other") {
  MetricNames names;
  MetricsLine line;
  REQUIRE(read_metrics_line(R"({"step":1,"a":1,"b":2,"c":{"a":3}})", names, line));
  REQUIRE(read_metrics_line(R"({"step":2,"b":4,"c":{"a":6,"b":7},"a":5})", names, line));
  CHECK(line.value(names.index_of("a")) == 5);
  CHECK(line.value(names.index_of("b")) == 4);
  CHECK(line.value(names.index_of("c/a")) == 6);
  CHECK(line.value(names.index_of("c/b")) == 7);
  CHECK(line.value(names.index_of("nothing")) == std::nullopt);
}

TEST_CASE("what is no JSON, or has no step, is no line") {
  for (const char* text : {"",
                           "{",
                           "{}",
                           "{\"step\":1",
                           "{\"step\":1,}",
                           "{\"step\":01}",
                           "{\"step\":1.}",
                           "{\"step\":-1}",
                           "{\"step\":1e0}",
                           "{\"step\":1}x",
                           "{\"step\":1,\"a\":inf}",
                           "{\"step\":1,\"a\":nan}",
                           "{\"step\":1,\"a\":1.}",
                           "{\"step\":1,\"a\":+1}",
                           "{\"step\":1,\"a\":0x1}",
                           "{\"step\":1,\"a\":1e999}",
                           "{\"step\":1,\"a\xff\":1}",
                           "{\"step\":1,\"a\n\":1}",
                           "{\"a\":{\"step\":1}}",
                           "{\"step\":{\"a\":1}}",
                           "{\"step\":1,\"a\":{}",
                           "{\"step\":9223372036854775808}",
                           "{\"step\":1,\"a\":tru}"}) {
    CAPTURE(text);
    CHECK_FALSE(is_line(text));
  }
  CHECK(is_line(R"({"step":9223372036854775807,"a":{}})"));
  CHECK(is_line(R"({"step":1,"a":{"b":{"c":1}},"d":[1,"x"]})"));
}

}  // namespace
}  // namespace dstrain::report
