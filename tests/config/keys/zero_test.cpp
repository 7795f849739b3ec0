#include <catch2/catch.hpp>

#include "tests/config/verdict_cases.h"

using namespace dstrain;
using namespace dstrain::test;

TEST_CASE("zenflow: a refused section is one error, whatever its keys are") {
  const std::string zenflow = "zero_optimization.zenflow";
  const std::string refused =
      "c.json:1:24: zero_optimization.zenflow: ZenFlow updates most weights late, by sums of "
      "several steps' gradients, which changes what is learned: remove the section; "
      "offload_optimizer updates every weight in every step, with copies beside the update";
  CHECK(ask(trains_with(zero(R"("zenflow": {"topk_ratio": 0.1, "offload": true})"))).error() ==
        refused);
  const Ask misspelt = ask(trains_with(zero(R"("zenflow": {"topk": 0.1})")));
  CHECK(misspelt.error() == refused + "\nc.json:1:36: zero_optimization.zenflow.topk: unknown key");
  const LoadedConfig loaded = misspelt.check();
  CHECK_THAT(verdict(loaded, zenflow), Catch::StartsWith("refused: ZenFlow updates"));
  CHECK(verdict(loaded, "zero_optimization") == "honoured: see zero_optimization.zenflow");
}

TEST_CASE("LoCo: a refused section refuses its keys, with one error") {
  const std::string loco = "zero_optimization.zeropp_loco_param";
  const Ask refused =
      ask(trains_with(zero(R"("stage": 3, "zeropp_loco_param": {"err_beta": 0.5, "reset_T": 9})")));
  CHECK(refused.error() ==
        "c.json:1:36: zero_optimization.zeropp_loco_param: removed from DeepSpeed (0.19.8); here "
        "it is the error feedback of quantized gradients: set zero_quantized_gradients, or remove "
        "it");
  const LoadedConfig loaded = refused.check();
  for (const char* key : {".err_beta", ".reset_T"})
    CHECK(verdict(loaded, loco + key) == "refused: inside " + loco);
  check_all({
      {zero(
           R"("stage": 3, "zero_quantized_gradients": true, "zeropp_loco_param": {"err_beta": 1})"),
       loco + ".err_beta",
       "honoured: the share of the error that stays when a step's loss is added to it"},
      {zero(R"("stage": 2, "zeropp_loco_param": {"err_beta": 1})"), loco + ".err_beta",
       "no_effect: matters at stage 3; the stage is 2"},
  });
}
