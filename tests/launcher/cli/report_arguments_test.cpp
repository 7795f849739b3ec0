#include "launcher/cli/report_arguments.h"

#include <catch2/catch.hpp>

#include "tests/launcher/cli/parsed_line.h"

namespace dstrain {
namespace {

using test::error_of;
using test::parse;
using Words = std::vector<std::string>;

TEST_CASE("report takes one run or several, and the file of its page") {
  const auto one = std::get<ReportArguments>(parse("report runs/a"));
  CHECK(one.runs == Words{"runs/a"});
  CHECK(one.output.empty());
  const auto two = std::get<ReportArguments>(parse("report a --output both.html b"));
  CHECK(two.runs == Words{"a", "b"});
  CHECK(two.output == "both.html");
  CHECK(error_of("report") == "dstrain report needs RUN (see dstrain report --help)");
}

TEST_CASE("compare takes several runs") {
  const auto runs = std::get<CompareArguments>(parse("compare a b c --json"));
  CHECK(runs.runs == Words{"a", "b", "c"});
  CHECK(runs.json);
  CHECK(error_of("compare a") == "dstrain compare needs RUN RUN... (see dstrain compare --help)");
}

TEST_CASE("watch takes one run and a port") {
  const auto watch = std::get<WatchArguments>(parse("watch a --port 8123"));
  CHECK(watch.run == "a");
  CHECK(watch.port == 8123);
  CHECK(std::get<WatchArguments>(parse("watch a")).port == 0);
  CHECK(error_of("watch") == "dstrain watch needs RUN (see dstrain watch --help)");
  CHECK(error_of("watch a b") == "dstrain watch takes one RUN, got 'a' and 'b'");
  CHECK(error_of("watch a --port 0") == "--port: expected an integer from 1 to 65535, got '0'");
  CHECK(error_of("watch a --port 65536") ==
        "--port: expected an integer from 1 to 65535, got '65536'");
}

}  // namespace
}  // namespace dstrain
