#include "runtime/config/check_report.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tests/config/config_fixture.h"

using namespace dstrain;
using namespace dstrain::test;

TEST_CASE("check: malformed text is a verdict on the file itself") {
  const LoadedConfig loaded = ask("{\"a\": }").check();
  REQUIRE(loaded.verdicts.size() == 1);
  CHECK(loaded.verdicts[0].key.empty());
  CHECK(loaded.verdicts[0].line == 1);
  CHECK(loaded.verdicts[0].column == 7);
  CHECK(check_text(loaded.verdicts) ==
        "c.json:1:7: error: expected a value, found '}'\n1 verdict: 1 error. This file does not "
        "train as it is.\n");
}

TEST_CASE("check: text has a line per key, JSON the members of docs/formats.md") {
  const LoadedConfig loaded =
      ask("{\"train_batch_size\": 8, \"fp18\": 1}", {"bf16.enabled=false"}).check();
  CHECK(check_text(loaded.verdicts) ==
        "c.json:1:2: train_batch_size: honoured\n"
        "c.json:1:25: fp18: unknown key (did you mean fp16?)\n"
        "--set: bf16: honoured\n"
        "--set: bf16.enabled: honoured\n"
        "4 verdicts: 3 honoured, 1 unknown. This file does not train as it is.\n");
  const auto json = nlohmann::json::parse(check_json(loaded.verdicts));
  REQUIRE(json.size() == 4);
  CHECK(json[1] == nlohmann::json{{"key", "fp18"},
                                  {"line", 1},
                                  {"column", 25},
                                  {"state", "unknown"},
                                  {"message", "unknown key (did you mean fp16?)"}});
  CHECK(json[3]["line"] == 0);
  CHECK(json[3]["column"] == 0);
}

TEST_CASE("check: an ignored key that the configuration does not have is told, with its place") {
  Ask a = ask(R"({"dstrain": {"ignore": ["fp17"]}})");
  a.request.ignored = {"typo.key"};
  const LoadedConfig loaded = a.check();
  CHECK(check_text(loaded.verdicts) ==
        "c.json:1:2: dstrain: honoured\n"
        "c.json:1:14: dstrain.ignore: honoured\n"
        "c.json:1:25: fp17: no_effect: the ignored key is not in the configuration\n"
        "--ignore: typo.key: no_effect: the ignored key is not in the configuration\n"
        "4 verdicts: 2 honoured, 2 no_effect. This file trains.\n");
  REQUIRE(loaded.verdicts.size() == 4);
  CHECK(loaded.verdicts[2].column == 25);
  CHECK(loaded.verdicts[3].line == 0);
  CHECK(loaded.warnings == std::vector<std::string>{
                               "c.json:1:25: fp17: the ignored key is not in the configuration",
                               "--ignore: typo.key: the ignored key is not in the configuration"});
}
