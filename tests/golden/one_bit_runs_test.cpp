// Whole runs of 1-bit Adam: what they send, and what a run is that was stopped before its second moment is frozen, or
// after.
#include <catch2/catch.hpp>

#include "tests/golden/optimizer_runs.h"

namespace dstrain::golden {
namespace {

constexpr int kSteps = 8, kFreeze = 3;

OptimizerRuns one_bit_runs() {
  return {{{"dstrain", {{"steps", kSteps}}}}, {{"freeze_step", kFreeze}}};
}

TEST_CASE("1-bit Adam is AdamW until it freezes, and then sends a tenth at most") {
  OptimizerRuns runs = one_bit_runs();
  for (const int ranks : {1, 2, 4}) {
    const Run plain = runs.run("AdamW", ranks), run = runs.run("OneBitAdam", ranks);
    REQUIRE(run.steps.size() == kSteps);
    for (int i = 0; i < kSteps; ++i) {
      const auto step = static_cast<size_t>(i);
      CAPTURE(ranks, i);
      const double loss = run.column("loss")[step], expected = plain.column("loss")[step];
      if (i <= kFreeze)
        CHECK(loss == expected);
      else
        CHECK(loss == Approx(expected).epsilon(0.02));
      const double sent = run.column("comm_bytes")[step], of_plain = plain.column("comm_bytes")[0];
      if (i < kFreeze)
        CHECK(sent == of_plain);
      else
        CHECK(sent <= 0.1 * of_plain);
    }
    CHECK(run.column("loss").back() != plain.column("loss").back());
  }
}

TEST_CASE("1-bit Adam: a run that was stopped goes on bit for bit, before it freezes and after") {
  OptimizerRuns runs = one_bit_runs();
  const Run expected = runs.run("OneBitAdam", 2, {"--save_interval", "2"});
  for (const char* step : {"step_2", "step_4", "step_6"}) {
    CAPTURE(step);
    const Run resumed =
        runs.run("OneBitAdam", 2, {"--resume", (expected.output / "checkpoints" / step).string()});
    CHECK((read_bytes(resumed.output / "model.safetensors") ==
           read_bytes(expected.output / "model.safetensors")));
  }
}

TEST_CASE("1-bit Adam: a checkpoint of two ranks goes on with four") {
  OptimizerRuns runs = one_bit_runs();
  const Run two = runs.run("OneBitAdam", 2, {"--save_interval", "4"});
  const Run four =
      runs.run("OneBitAdam", 4, {"--resume", (two.output / "checkpoints" / "step_4").string()});
  CHECK(four.column("loss").back() == Approx(two.column("loss").back()).epsilon(0.02));
}

}  // namespace
}  // namespace dstrain::golden
