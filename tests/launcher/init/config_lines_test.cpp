#include "launcher/init/config_lines.h"

#include <catch2/catch.hpp>

#include "runtime/config/json/reader.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

TEST_CASE("lines become sections in the order in which they are first named, with comments above") {
  const std::vector<ConfigLine> lines{{"a.type", "\"x\"", "the section a"},
                                      {"n", "1", "a number"},
                                      {"d.model.type", "\"m\"", "the model"},
                                      {"d.steps", "5"},
                                      {"a.params.lr", "0.5"},
                                      {"d.model.layers", "2"}};
  const std::string text = config_text({"head"}, lines);
  CHECK(text ==
        "{\n"
        "  // head\n"
        "  // the section a\n"
        "  \"a\": {\n"
        "    \"type\": \"x\",\n"
        "    \"params\": {\n"
        "      \"lr\": 0.5\n"
        "    }\n"
        "  },\n"
        "  // a number\n"
        "  \"n\": 1,\n"
        "  \"d\": {\n"
        "    // the model\n"
        "    \"model\": {\n"
        "      \"type\": \"m\",\n"
        "      \"layers\": 2\n"
        "    },\n"
        "    \"steps\": 5\n"
        "  }\n"
        "}\n");
  CHECK(find(read_config(text, Source::file), "d.model.layers")->value.integer == 2);
}

TEST_CASE("of a key that comes twice the last value counts") {
  CHECK(config_text({}, {{"a", "1", "one"}, {"a", "2"}}) == "{\n  // one\n  \"a\": 2\n}\n");
  CHECK(config_text({}, {{"a", "1"}, {"a.b", "2"}}) == "{\n  \"a\": {\n    \"b\": 2\n  }\n}\n");
  CHECK(config_text({}, {{"a.b", "2"}, {"a", "1"}}) == "{\n  \"a\": 1\n}\n");
}

TEST_CASE("a line of an option has JSON, or else a string") {
  CHECK(line_of_set("a.b=1").value == "1");
  CHECK(line_of_set("a.b=[1, 2]").value == "[1, 2]");
  CHECK(line_of_set("a.b=x=y").value == "\"x=y\"");
  CHECK(line_of_set("a.b=x=y").key == "a.b");
  for (const char* wrong : {"a", "=1", "a=", "a..b=1", ".a=1"})
    CHECK_THROWS_AS(line_of_set(wrong), UserError);
  CHECK(as_sets({{"a.b", "1"}, {"c", "\"x\""}}) == std::vector<std::string>{"a.b=1", "c=\"x\""});
}

}  // namespace
}  // namespace dstrain
