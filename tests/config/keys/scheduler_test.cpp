#include <catch2/catch.hpp>

#include "tests/config/verdict_cases.h"

using namespace dstrain;
using namespace dstrain::test;

namespace {

std::string scheduler(const std::string& type, const std::string& params) {
  return R"("scheduler": {"type": ")" + type + R"(", "params": {)" + params + "}}";
}

}  // namespace

TEST_CASE("scheduler: rates beyond the range of fp32 are errors") {
  const std::string most = "error: expected a number from 0 to 3.4028234663852886e+38, found 1e+39";
  check_all({
      {scheduler("WarmupLR", R"("warmup_max_lr": 1e39)"), "scheduler.params.warmup_max_lr", most},
      {scheduler("WarmupLR", R"("warmup_max_lr": 1e38)"), "scheduler.params.warmup_max_lr",
       "honoured"},
      {scheduler("WarmupLR", R"("warmup_min_lr": 1e39)"), "scheduler.params.warmup_min_lr", most},
      {scheduler("OneCycle", R"("cycle_min_lr": 0, "cycle_max_lr": 1e39)"),
       "scheduler.params.cycle_max_lr", most},
      {scheduler("LRRangeTest", R"("lr_range_test_step_rate": 1e39)"),
       "scheduler.params.lr_range_test_step_rate", most},
  });
}

TEST_CASE(
    "scheduler: arguments of PyTorch's schedules are not judged, and warmup_type has its case") {
  check_all({
      {scheduler("CosineAnnealingLR", R"("T_max": 9)"), "scheduler.params.T_max",
       "error: see scheduler.type"},
      {scheduler("StepLR", R"("gamma": 0.5)"), "scheduler.params.gamma",
       "error: see scheduler.type"},
      {scheduler("WarmupLR", R"("warmup_type": "Linear")"), "scheduler.params.warmup_type",
       "error: expected one of \"log\", \"linear\", found \"Linear\" (did you mean \"linear\"?)"},
      {scheduler("WarmupLR", R"("warmup_type": "linear")"), "scheduler.params.warmup_type",
       "honoured"},
      {scheduler("WarmupLR", R"("warmup_type": 5)"), "scheduler.params.warmup_type",
       "error: expected a string, found 5"},
  });
}

TEST_CASE("scheduler: of type auto, parameters that are auto are unset, with one line") {
  const std::string all = scheduler(
      "auto", R"("warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto",
                 "total_num_steps": "auto")");
  check_all({
      {all, "scheduler", "no_effect"},
      {all, "scheduler.type",
       "no_effect: \"auto\" names no schedule: the learning rate is constant"},
      {all, "scheduler.params.warmup_min_lr", "no_effect: unset"},
      {all, "scheduler.params.total_num_steps", "no_effect: unset"},
      {scheduler("auto", R"("warmup_min_lr": "auto", "warmup_max_lr": 0.1)"),
       "scheduler.params.warmup_max_lr",
       "error: belongs to WarmupLR, WarmupDecayLR, and scheduler.type is \"auto\": name the "
       "schedule"},
      {scheduler("auto", R"("warmup": "auto")"), "scheduler.params.warmup",
       "unknown: unknown key (say it in steps, with scheduler.params.warmup_num_steps)"},
      {R"("scheduler": {"params": {"warmup_max_lr": "auto"}})", "scheduler.params.warmup_max_lr",
       "error: belongs to WarmupLR, WarmupDecayLR, not to this section without a type"},
  });
  const LoadedConfig loaded = ask(trains_with(all)).load();
  CHECK(loaded.job.schedule == ScheduleConfig{});
  CHECK(loaded.warnings ==
        std::vector<std::string>{
            "c.json:1:16: scheduler.type: \"auto\" names no schedule: the learning rate is "
            "constant"});
}
