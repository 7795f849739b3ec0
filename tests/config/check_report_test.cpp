#include "runtime/config/report/check_report.h"

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
  CHECK(check_text(loaded.verdicts, CheckLines::notable) ==
        "c.json:1:7: error: expected a value, found '}'\n1 verdict: 1 error. This file does not "
        "train as it is.\n");
}

TEST_CASE("check: text can have a line for every key, JSON the members of docs/formats.md") {
  const LoadedConfig loaded =
      ask("{\"train_batch_size\": 8, \"gradient_clippin\": 1}", {"bf16.enabled=false"}).check();
  CHECK(check_text(loaded.verdicts, CheckLines::all, loaded.way_on) ==
        "c.json:1:2: train_batch_size: honoured\n"
        "c.json:1:25: gradient_clippin: unknown key (did you mean gradient_clipping?); DeepSpeed "
        "ignores it; "
        "`--ignore gradient_clippin --set gradient_clipping=1` goes on\n"
        "--set: bf16: honoured\n"
        "--set: bf16.enabled: honoured\n"
        "4 verdicts: 3 honoured, 1 unknown. This file does not train as it is; it trains with "
        "--ignore gradient_clippin --set gradient_clipping=1\n");
  const auto json = nlohmann::json::parse(check_json(loaded.verdicts));
  REQUIRE(json.size() == 4);
  CHECK(json[1] ==
        nlohmann::json{{"key", "gradient_clippin"},
                       {"line", 1},
                       {"column", 25},
                       {"state", "unknown"},
                       {"message",
                        "unknown key (did you mean gradient_clipping?); DeepSpeed ignores it; "
                        "`--ignore gradient_clippin --set gradient_clipping=1` goes on"}});
  CHECK(json[3]["line"] == 0);
  CHECK(json[3]["column"] == 0);
}

TEST_CASE("check: one line names what is honoured without a word, and the rest has lines") {
  const LoadedConfig loaded = ask(R"({"train_batch_size": 8, "steps_per_print": 2,
  "zero_optimization": {"stage": 2, "overlap_comm": "auto"}, "gradient_clippin": 1,
  "bf16": {"enabled": false}})")
                                  .check();
  const std::string text = check_text(loaded.verdicts, CheckLines::notable);
  CHECK_THAT(text, Catch::StartsWith(
                       "c.json:2:37: zero_optimization.overlap_comm: honoured: true (auto: every "
                       "stage)\nc.json:2:62: gradient_clippin: unknown key"));
  CHECK_THAT(text, Catch::Contains("\nhonoured: train_batch_size, steps_per_print, "
                                   "zero_optimization.stage, bf16.enabled\n8 verdicts: "));
  CHECK_THAT(check_text(ask("{\"train_batch_siz\": 8}").check().verdicts, CheckLines::notable),
             !Catch::Contains("honoured"));
}

TEST_CASE("check: a key's message has the warning that a run prints once") {
  const LoadedConfig loaded = ask(R"({"scheduler": {"type": "WarmupDecayLR",
  "params": {"warmup_num_steps": 30, "total_num_steps": "auto", "warmup_max_lr": 0.1}},
  "dstrain": {"steps": 3}, "optimizer": {"type": "Adam", "params": {"lr": 0.5}}})")
                                  .check();
  const std::string less = "3 is less than warmup_num_steps 30";
  CHECK(verdict(loaded, "scheduler.params.total_num_steps") ==
        "honoured: 3 (auto: dstrain.steps); " + less);
  CHECK_THAT(check_text(loaded.verdicts, CheckLines::notable), Catch::Contains(less));
  CHECK_THAT(check_json(loaded.verdicts), Catch::Contains(less));
  const std::string overrules = "the scheduler overrules it: scheduler.params.warmup_max_lr is 0.1";
  CHECK(verdict(loaded, "optimizer.params.lr") == "no_effect: " + overrules);
  CHECK(loaded.warnings ==
        std::vector<std::string>{
            "c.json:2:38: scheduler.params.total_num_steps: " + less,
            "c.json:3:69: optimizer.params.lr: 0.5 has no effect, " + overrules});
}

TEST_CASE("check: an ignored key that the configuration does not have is told, with its place") {
  Ask a = ask(R"({"dstrain": {"ignore": ["fp17"]}})");
  a.request.ignored = {"typo.key"};
  const LoadedConfig loaded = a.check();
  CHECK(check_text(loaded.verdicts, CheckLines::all) ==
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
