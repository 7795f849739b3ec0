#include <catch2/catch.hpp>

#include "tests/config/verdict_cases.h"

using namespace dstrain;
using namespace dstrain::test;

namespace {

// Returns a configuration with a schedule, for `steps` steps.
std::string scheduled(const std::string& type, const std::string& params, int steps = 1000,
                      const std::string& optimizer = R"("type": "AdamW")") {
  return trains_with(R"("optimizer": {)" + optimizer + R"(}, "scheduler": {"type": ")" + type +
                     R"(", "params": {)" + params + R"(}}, "dstrain": {"steps": )" +
                     std::to_string(steps) + "}");
}

const std::string kDecay = "scheduler.params.decay_mom_rate";

// A cycle of 20 steps, after which beta1 is 0.9 * (1 + rate * k).
std::string cycle(const std::string& rate, int steps, const std::string& more = "") {
  return scheduled("OneCycle",
                   R"("cycle_min_lr": 1e-3, "cycle_max_lr": 1e-2, "cycle_first_step_size": 10,
                      "decay_step_size": 1, "decay_mom_rate": )" +
                       rate + more,
                   steps);
}

std::string grows(int step, int steps) {
  return "error: by DeepSpeed's formula beta1 grows and is 1 at step " + std::to_string(step) +
         " of " + std::to_string(steps) + ", where training diverges: use 0, or fewer steps";
}

}  // namespace

TEST_CASE("schedule: OneCycle's beta1 must not grow to 1 within the run's steps") {
  // 0.9 * (1 + 0.05 * 3) is above 1, at k = 3: iteration 22, step 24.
  CHECK(verdict(ask(cycle("0.05", 23)).check(), kDecay) == "honoured");
  CHECK(verdict(ask(cycle("0.05", 24)).check(), kDecay) == grows(24, 24));
  CHECK(verdict(ask(cycle("0.05", 98)).check(), kDecay) == grows(24, 98));
  CHECK(verdict(ask(cycle("0.002", 76)).check(), kDecay) == "honoured");
  CHECK(verdict(ask(cycle("0.002", 77)).check(), kDecay) == grows(77, 77));
  // fp32 has no number between 1 and 0.99999998, which is 1 there.
  CHECK(verdict(ask(cycle("0.1111111", 22)).check(), kDecay) == grows(22, 22));
  CHECK(verdict(ask(cycle("0.05", 98, R"(, "cycle_momentum": false)")).check(), kDecay) ==
        "honoured");
  CHECK(verdict(ask(cycle("0.05", 98, R"(, "last_batch_iteration": 9)")).check(), kDecay) ==
        grows(14, 98));
  CHECK(verdict(ask(cycle("1e-300", 1000)).check(), kDecay) == "honoured");
}

TEST_CASE("schedule: a learning rate must not leave fp32 within the run's steps") {
  const std::string range =
      R"("lr_range_test_min_lr": 1e30, "lr_range_test_step_size": 1, "lr_range_test_step_rate": 1e7)";
  const std::string key = "scheduler.params.lr_range_test_step_rate";
  CHECK(verdict(ask(scheduled("LRRangeTest", range, 34)).check(), key) == "honoured");
  CHECK(verdict(ask(scheduled("LRRangeTest", range, 36)).check(), key) ==
        "error: takes the learning rate to 3.50000001e+38"
        " within the 36 steps, and fp32 ends at 3.4028234663852886e+38: use less");
  const std::string cosine = R"("total_num_steps": 9, "cos_min_ratio": 1e38)";
  CHECK(
      verdict(ask(scheduled("WarmupCosineLR", cosine, 9, R"("type": "Adam", "params": {"lr": 1})"))
                  .check(),
              "scheduler.params.cos_min_ratio") == "honoured");
  CHECK(
      verdict(ask(scheduled("WarmupCosineLR", cosine, 9, R"("type": "Adam", "params": {"lr": 9})"))
                  .check(),
              "scheduler.params.cos_min_ratio") ==
      "error: takes the learning rate to 9e+38 within the 9 steps, and fp32 ends at "
      "3.4028234663852886e+38: use less");
}

TEST_CASE("schedule: momenta that are 1 in fp32 are errors") {
  const std::string below = "error: expected a number from 0 to below 1, found 0.99999999";
  check_all({
      {R"("scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0, "cycle_max_lr": 1,
           "cycle_max_mom": 0.99999999}})",
       "scheduler.params.cycle_max_mom", below},
      {R"("optimizer": {"type": "Muon", "params": {"momentum": 0.99999999}})",
       "optimizer.params.momentum", below},
      {R"("optimizer": {"type": "Adam", "params": {"betas": [0.9, 0.99999999]}})",
       "optimizer.params.betas",
       "error: expected a list of two numbers from 0 to below 1, found [0.9, 0.99999999]"},
      {R"("optimizer": {"type": "Adam", "params": {"betas": [0.9, 0.9999999]}})",
       "optimizer.params.betas", "honoured"},
  });
}

TEST_CASE("schedule: every schedule has last_batch_iteration") {
  const std::string key = "scheduler.params.last_batch_iteration";
  for (const auto& [type, required] : {std::pair{"LRRangeTest", ""},
                                       {"OneCycle", R"("cycle_min_lr": 0, "cycle_max_lr": 1, )"},
                                       {"WarmupLR", ""},
                                       {"WarmupDecayLR", R"("total_num_steps": 5, )"},
                                       {"WarmupCosineLR", R"("total_num_steps": 5, )"}}) {
    CAPTURE(type);
    const auto with = [&](const std::string& value) {
      return ask(scheduled(type, required + ("\"last_batch_iteration\": " + value)));
    };
    CHECK(with("-1").job().schedule.last_batch_iteration == -1);
    CHECK(verdict(with("-1").check(), key) == "honoured");
    CHECK(with("41").job().schedule.last_batch_iteration == 41);
    CHECK(
        verdict(with("41").check(), key) ==
        "honoured: as in DeepSpeed, step 1 has the optimizer's own rates, step 2 those of the next "
        "iteration");
    CHECK(verdict(with("-2").check(), key) ==
          "error: expected an integer of at least -1, found -2");
  }
}

TEST_CASE("schedule: the optimizer's rates have an effect if the schedule begins later") {
  const std::string own = R"("type": "Adam", "params": {"lr": 0.5, "betas": [0.5, 0.6]})";
  const std::string cycle = R"("cycle_min_lr": 0.1, "cycle_max_lr": 0.2)";
  const LoadedConfig later =
      ask(scheduled("OneCycle", cycle + R"(, "last_batch_iteration": 3)", 9, own)).check();
  CHECK(verdict(later, "optimizer.params.lr") == "honoured");
  CHECK(verdict(later, "optimizer.params.betas") == "honoured");
  CHECK(later.warnings.empty());
  CHECK(ask(scheduled("OneCycle", cycle, 9, own)).check().warnings.size() == 2);
}
