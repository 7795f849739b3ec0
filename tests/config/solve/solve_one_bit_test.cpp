#include <catch2/catch.hpp>

#include "tests/config/config_fixture.h"

using namespace dstrain;
using namespace dstrain::test;

namespace {

// Returns a configuration with an optimizer and members of the file.
std::string with(const std::string& type, const std::string& params = "",
                 const std::string& members = "") {
  return trains_with(fmt::format(R"("optimizer": {{"type": "{}", "params": {{{}}}}}{}{})", type,
                                 params, members.empty() ? "" : ", ", members));
}

OptimizerConfig optimizer_of(const std::string& type, const std::string& params = "") {
  return ask(with(type, params)).job().optimizer;
}

struct OneBitType {
  const char* type;
  OptimizerKind kind;
  const char *name, *stages;  // as messages have them: the type, and at which stages it runs
  int highest_stage;
};
constexpr const char* kNeedsGradients = "stages 0 and 1, as each rank needs its whole gradients";
constexpr OneBitType kTypes[] = {
    {"OnebitAdam", OptimizerKind::one_bit_adam, "OneBitAdam", kNeedsGradients, 1},
    {"OnebitLamb", OptimizerKind::one_bit_lamb, "OneBitLamb", kNeedsGradients, 1},
    {"ZeroOneAdam", OptimizerKind::zero_one_adam, "ZeroOneAdam",
     "stage 0, as each rank makes weights of its own of all masters and second moments", 0},
};

}  // namespace

TEST_CASE("training: 1-bit optimizers have DeepSpeed's defaults") {
  for (const OneBitType& type : kTypes) {
    const OptimizerConfig defaults = optimizer_of(type.type);
    CAPTURE(type.type);
    CHECK(defaults.kind == type.kind);
    CHECK(defaults.lr == 0.001);
    CHECK(defaults.beta2 == 0.999);
    CHECK(defaults.eps == 1e-8);
    CHECK(defaults.freeze_step == 100000);
    CHECK(defaults.max_coeff == 10);
    CHECK(defaults.min_coeff == 0.01);
    CHECK(defaults.one_bit_lamb == OneBitLambConfig{0.9, 4, 0.5, 0.1});
    CHECK(defaults.zero_one == ZeroOneConfig{100000, 16, 32678, 16});
  }
}

TEST_CASE("training: 1-bit optimizers have the constants of the file") {
  CHECK(optimizer_of("OnebitAdam", R"("freeze_step": 400)").freeze_step == 400);
  const OptimizerConfig lamb =
      optimizer_of("OnebitLamb",
                   R"("freeze_step": 7, "max_coeff": 0.5, "min_coeff": 0.25, "coeff_beta": 0.75,
                      "factor_max": 3, "factor_min": 0.125, "factor_threshold": 0.5)");
  CHECK(lamb.freeze_step == 7);
  CHECK(lamb.max_coeff == 0.5);
  CHECK(lamb.min_coeff == 0.25);
  CHECK(lamb.one_bit_lamb == OneBitLambConfig{0.75, 3, 0.125, 0.5});
  CHECK(optimizer_of("ZeroOneAdam",
                     R"("var_freeze_step": 4, "var_update_scaler": 3, "local_step_scaler": 2,
                        "local_step_clipper": 1)")
            .zero_one == ZeroOneConfig{4, 3, 2, 1});
  for (const char* key :
       {"var_freeze_step", "var_update_scaler", "local_step_scaler", "local_step_clipper"})
    CHECK_THAT(ask(with("ZeroOneAdam", fmt::format(R"("{}": 0)", key))).error(),
               Catch::Contains(fmt::format("optimizer.params.{}", key)));
}

TEST_CASE("training: what 1-bit optimizers do not go with") {
  for (const OneBitType& type : kTypes) {
    const std::string name = type.name;
    const auto asked = [&](const std::string& members) {
      return ask(with(type.type, "", members), {}, 2);
    };
    for (int stage = 0; stage <= 3; ++stage) {
      const auto answer = asked(fmt::format(R"("zero_optimization": {{"stage": {}}})", stage));
      if (stage <= type.highest_stage) {
        CHECK(answer.job().zero_stage == stage);
        CHECK(answer.job().optimizer.kind == type.kind);
      } else {
        CHECK_THAT(answer.error(),
                   Catch::Contains("zero_optimization.stage: " + name + " runs at " + type.stages));
      }
    }
    CHECK_THAT(asked(R"("pipeline": {"stages": 2}, "gradient_accumulation_steps": 2)").error(),
               Catch::Contains("pipeline.stages: " + name + " runs without a pipeline"));
    CHECK_THAT(
        asked(R"("dstrain": {"comm_hook": {"type": "powerSGD"}})").error(),
        Catch::Contains("it says how gradients travel, and " + name + " sends something else"));
    CHECK_THAT(asked(R"("zero_optimization": {"stage": 0, "offload_optimizer": {"device": "cpu"}})")
                   .error(),
               Catch::Contains(name + " updates on the device"));
  }
}
