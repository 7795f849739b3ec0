// Keys dstrain.parameter_groups and dstrain.lora.
#include <catch2/catch.hpp>

#include "runtime/config/report/resolved_config.h"
#include "tests/config/config_fixture.h"

using namespace dstrain;
using namespace dstrain::test;
using Catch::Contains;

namespace {

Ask with_groups(const std::string& groups, const std::string& others = "") {
  return ask(trains_with(others + R"("dstrain": {"parameter_groups": )" + groups + "}"));
}

Ask with_lora(const std::string& lora, const std::string& others = "") {
  return ask(trains_with(others + R"("dstrain": {"lora": {)" + lora + "}}"));
}

std::string groups_error(const std::string& groups) {
  return with_groups(groups).error();
}

}  // namespace

TEST_CASE("parameter groups: what a group does not say is the optimizer's") {
  CHECK(with_groups("[]").job().model.fine_tuning() == FineTuning{});
  const FineTuning tuning =
      with_groups(
          R"([{"match": ["*.bias", "*ln*"], "weight_decay": 0}, {"match": ["*"], "lr_scale": 0.5},
              {"match": ["lm_head*"], "trainable": false}])")
          .job()
          .model.fine_tuning();
  REQUIRE(tuning.groups.size() == 3);
  CHECK(tuning.groups[0] ==
        ParameterGroup{.match = {"*.bias", "*ln*"}, .lr_scale = 1, .weight_decay = 0.0});
  CHECK(tuning.groups[1] == ParameterGroup{.match = {"*"}, .lr_scale = 0.5});
  CHECK(tuning.groups[2] == ParameterGroup{.match = {"lm_head*"}, .trainable = false});
  CHECK_FALSE(tuning.lora);
}

TEST_CASE("parameter groups: an error names the group and the member") {
  const std::string key = "c.json:1:", at = "dstrain.parameter_groups: ";
  CHECK_THAT(groups_error(R"({"match": ["*"]})"), Contains(at + "expected a list of groups"));
  CHECK_THAT(groups_error("[3]"), Contains(at + "group 1: expected an object, found 3"));
  CHECK_THAT(groups_error(R"([{"match": ["*"]}, {"lr_scale": 2}])"),
             Contains(at + "group 2: \"match\" is missing"));
  CHECK_THAT(groups_error(R"([{"match": ["*"], "lrscale": 2}])"),
             Contains("group 1: unknown member \"lrscale\" (did you mean \"lr_scale\"?)"));
  CHECK_THAT(groups_error(R"([{"match": "*"}])"),
             Contains("\"match\": expected a list of patterns"));
  CHECK_THAT(groups_error(R"([{"match": []}])"),
             Contains("\"match\": expected a list of patterns"));
  CHECK_THAT(groups_error(R"([{"match": ["*"], "lr_scale": -1}])"),
             Contains("\"lr_scale\": expected a number from 0 to 1e6, found -1"));
  CHECK_THAT(groups_error(R"([{"match": ["*"], "weight_decay": "0"}])"),
             Contains("\"weight_decay\": expected a number from 0 to 1e6, found \"0\""));
  CHECK_THAT(groups_error(R"([{"match": ["*"], "trainable": 0}])"),
             Contains("\"trainable\": expected true or false, found 0"));
  CHECK_THAT(groups_error(R"([{"match": ["*"], "match": ["a"]}])"), Contains("is given twice"));
}

TEST_CASE("parameter groups: a 1-bit optimizer has one learning rate") {
  const std::string one_bit =
      R"("optimizer": {"type": "OneBitAdam", "params": {"freeze_step": 2}}, )";
  CHECK_THAT(with_groups(R"([{"match": ["*"], "lr_scale": 0.5}])", one_bit).error(),
             Contains("dstrain.parameter_groups: a 1-bit optimizer has one learning rate"));
  CHECK(with_groups(R"([{"match": ["*"], "weight_decay": 0}])", one_bit).error() == "no error");
}

TEST_CASE("lora: the defaults are PEFT's rank and alpha, on the products of all blocks") {
  const Job job = with_lora("").job();
  REQUIRE(job.model.fine_tuning().lora);
  CHECK(*job.model.fine_tuning().lora ==
        LoraConfig{.r = 8, .alpha = 8, .dropout = 0, .rslora = false, .all_linear = true});
  CHECK(job.adapters == AdapterFiles{});
  const Job other = with_lora(R"("r": 4, "alpha": 32, "dropout": 0.1, "rslora": true,
                                 "targets": ["q_proj", "v_proj"], "init": "dir", "merge": true)")
                        .job();
  CHECK(*other.model.fine_tuning().lora ==
        LoraConfig{
            .r = 4, .alpha = 32, .dropout = 0.1, .rslora = true, .targets = {"q_proj", "v_proj"}});
  CHECK(other.adapters == AdapterFiles{.init = "dir", .merge = true});
  CHECK_FALSE(ask(trains_with("")).job().model.fine_tuning().lora);
}

TEST_CASE("lora: what an adapter cannot be is an error") {
  CHECK_THAT(with_lora(R"("r": 0)").error(),
             Contains("dstrain.lora.r: expected an integer from 1"));
  CHECK_THAT(with_lora(R"("alpha": 0)").error(),
             Contains("dstrain.lora.alpha: expected a number above 0"));
  CHECK_THAT(with_lora(R"("dropout": 1)").error(), Contains("dstrain.lora.dropout: expected"));
  CHECK_THAT(with_lora(R"("targets": [])").error(), Contains("dstrain.lora.targets: expected"));
  CHECK_THAT(with_lora(R"("rank": 4)").error(), Contains("dstrain.lora.rank: unknown key"));
}

TEST_CASE("lora: the base has the run's dtype, or is in blocks of 8 or 4 bits") {
  CHECK(with_lora(R"("base": "f32")").error() == "no error");
  CHECK(with_lora(R"("base": "bf16")", R"("bf16": {"enabled": true}, )").error() == "no error");
  CHECK_THAT(with_lora(R"("base": "bf16")").error(),
             Contains("dstrain.lora.base: the base has the run's dtype, f32"));
  CHECK(with_lora(R"("base": "f32")").job().model.fine_tuning().lora->base == BlockFormat::none);
  CHECK(with_lora(R"("base": "nf4")").job().model.fine_tuning().lora->base == BlockFormat::nf4);
  CHECK(with_lora(R"("base": "int8")").job().model.fine_tuning().lora->base == BlockFormat::int8);
  CHECK_THAT(with_lora(R"("base": "nf4", "merge": true)").error(),
             Contains("dstrain.lora.merge: the weights of the blocks are rounded to nf4"));
  CHECK_THAT(with_lora(R"("base": "int4")").error(), Contains("expected one of"));
}

TEST_CASE("fine-tuning survives the resolved configuration") {
  const Ask asked = ask(trains_with(
      R"("dstrain": {"parameter_groups": [{"match": ["*.bias"], "weight_decay": 0.25}],
                     "lora": {"r": 2, "targets": ["qkv"], "merge": true}})"));
  const LoadedConfig loaded = asked.load();
  const Job again = job_from_resolved(resolved_config_json(loaded), model_registry());
  CHECK(again.model.fine_tuning() == loaded.job.model.fine_tuning());
  CHECK(again.adapters == loaded.job.adapters);
}
