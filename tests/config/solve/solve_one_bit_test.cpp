#include <catch2/catch.hpp>

#include "tests/config/config_fixture.h"

using namespace dstrain;
using namespace dstrain::test;

namespace {
std::string one_bit(const std::string& params) {
  return trains_with(R"("optimizer": {"type": "OnebitAdam", "params": {)" + params + "}}");
}

// Checks what no 1-bit optimizer goes with. `stages`: how the refusal of a stage begins; the first refused stage.
void check_refusals(const std::string& type, const std::string& stages, int first_refused) {
  const auto refusal = [&](const std::string& with) {
    return ask(trains_with(fmt::format(R"("optimizer": {{"type": "{}"}}, {})", type, with)), {}, 2)
        .error();
  };
  for (int stage = first_refused; stage <= 3; ++stage)
    CHECK_THAT(refusal(fmt::format(R"("zero_optimization": {{"stage": {}}})", stage)),
               Catch::Contains("zero_optimization.stage: " + type + " runs at " + stages));
  CHECK_THAT(refusal(R"("pipeline": {"stages": 2}, "gradient_accumulation_steps": 2)"),
             Catch::Contains("pipeline.stages: " + type + " runs without a pipeline"));
  CHECK_THAT(
      refusal(R"("dstrain": {"comm_hook": {"type": "powerSGD"}})"),
      Catch::Contains("it says how gradients travel, and " + type + " sends something else"));
  CHECK_THAT(
      refusal(R"("zero_optimization": {"stage": 0, "offload_optimizer": {"device": "cpu"}})"),
      Catch::Contains(type + " updates on the device"));
}
}  // namespace

TEST_CASE("training: 1-bit Adam has DeepSpeed's defaults, and what it does not go with") {
  const OptimizerConfig defaults = ask(one_bit("")).job().optimizer;
  CHECK(defaults.kind == OptimizerKind::one_bit_adam);
  CHECK(defaults.lr == 0.001);
  CHECK(defaults.beta2 == 0.999);
  CHECK(defaults.eps == 1e-8);
  CHECK(defaults.freeze_step == 100000);
  CHECK(ask(one_bit(R"("freeze_step": 400)")).job().optimizer.freeze_step == 400);
  check_refusals("OneBitAdam", "stages 0 and 1, as each rank needs its whole gradients", 2);
  const Job sharded =
      ask(trains_with(R"("optimizer": {"type": "OnebitAdam"}, "zero_optimization": {"stage": 1})"),
          {}, 2)
          .job();
  CHECK(sharded.zero_stage == 1);
  CHECK(sharded.optimizer.kind == OptimizerKind::one_bit_adam);
}

TEST_CASE("training: 0/1 Adam has DeepSpeed's defaults, and what it does not go with") {
  const auto zero_one = [](const std::string& params) {
    return trains_with(R"("optimizer": {"type": "ZeroOneAdam", "params": {)" + params + "}}");
  };
  const OptimizerConfig defaults = ask(zero_one("")).job().optimizer;
  CHECK(defaults.kind == OptimizerKind::zero_one_adam);
  CHECK(defaults.lr == 0.001);
  CHECK(defaults.zero_one == ZeroOneConfig{100000, 16, 32678, 16});
  CHECK(ask(zero_one(R"("var_freeze_step": 4, "var_update_scaler": 3, "local_step_scaler": 2,
                        "local_step_clipper": 1)"))
            .job()
            .optimizer.zero_one == ZeroOneConfig{4, 3, 2, 1});
  for (const char* key :
       {"var_freeze_step", "var_update_scaler", "local_step_scaler", "local_step_clipper"})
    CHECK_THAT(ask(zero_one(fmt::format(R"("{}": 0)", key))).error(),
               Catch::Contains(fmt::format("optimizer.params.{}", key)));
  check_refusals("ZeroOneAdam",
                 "stage 0, as each rank makes weights of its own of all masters and second moments",
                 1);
}

TEST_CASE("training: 1-bit Lamb has DeepSpeed's defaults, and what it does not go with") {
  const auto lamb = [](const std::string& params) {
    return trains_with(R"("optimizer": {"type": "OnebitLamb", "params": {)" + params + "}}");
  };
  const OptimizerConfig defaults = ask(lamb("")).job().optimizer;
  CHECK(defaults.kind == OptimizerKind::one_bit_lamb);
  CHECK(defaults.freeze_step == 100000);
  CHECK(defaults.max_coeff == 10);
  CHECK(defaults.min_coeff == 0.01);
  CHECK(defaults.one_bit_lamb == OneBitLambConfig{0.9, 4, 0.5, 0.1});
  const OptimizerConfig own =
      ask(lamb(R"("freeze_step": 7, "max_coeff": 0.5, "min_coeff": 0.25, "coeff_beta": 0.75,
                  "factor_max": 3, "factor_min": 0.125, "factor_threshold": 0.5)"))
          .job()
          .optimizer;
  CHECK(own.freeze_step == 7);
  CHECK(own.max_coeff == 0.5);
  CHECK(own.min_coeff == 0.25);
  CHECK(own.one_bit_lamb == OneBitLambConfig{0.75, 3, 0.125, 0.5});
  check_refusals("OneBitLamb", "stages 0 and 1, as each rank needs its whole gradients", 2);
}
