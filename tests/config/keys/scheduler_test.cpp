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
