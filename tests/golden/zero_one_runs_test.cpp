// Whole runs of 0/1 Adam: what they send and measure, and what a run is that was stopped in one of its phases.
#include <catch2/catch.hpp>

#include "tests/golden/optimizer_runs.h"

namespace dstrain::golden {
namespace {

constexpr size_t kZeroOneSteps = 14;
// Steps 1, 2 and 4 send whole gradients, 3 and 5 signs of gradients; 6, 7, 9, 11 and 14 synchronise, the others send
// nothing.
enum class Sends { gradients, signs, nothing };
constexpr Sends kSends[kZeroOneSteps] = {
    Sends::gradients, Sends::gradients, Sends::signs,   Sends::gradients, Sends::signs,
    Sends::signs,     Sends::signs,     Sends::nothing, Sends::signs,     Sends::nothing,
    Sends::signs,     Sends::nothing,   Sends::nothing, Sends::signs};

OptimizerRuns zero_one_runs() {
  return {{{"steps_per_print", 1},
           {"dstrain", {{"steps", kZeroOneSteps}, {"eval_interval", kZeroOneSteps / 2}}}},
          {{"var_freeze_step", 5},
           {"var_update_scaler", 2},
           {"local_step_scaler", 2},
           {"local_step_clipper", 3}}};
}

TEST_CASE("0/1 Adam sends gradients, signs or nothing, measures signs, and learns as AdamW does") {
  OptimizerRuns runs = zero_one_runs();
  for (const int ranks : {1, 2, 4}) {
    const Run plain = runs.run("AdamW", ranks), run = runs.run("ZeroOneAdam", ranks);
    REQUIRE(run.steps.size() == kZeroOneSteps);
    const double whole = plain.column("comm_bytes")[0];
    for (size_t i = 0; i < kZeroOneSteps; ++i) {
      CAPTURE(ranks, i);
      const double sent = run.column("comm_bytes")[i];
      CHECK(run.column("loss")[i] == Approx(plain.column("loss")[i]).epsilon(i < 3 ? 0 : 0.05));
      const bool signs = kSends[i] == Sends::signs && ranks > 1;
      if (kSends[i] == Sends::gradients) CHECK(sent == whole);
      if (signs) CHECK(sent <= 0.1 * whole);  // messages of less than 1 KiB do not count
      if (kSends[i] == Sends::nothing) CHECK(sent == 0);
      REQUIRE(run.steps[i].contains("codec_error") == signs);
      if (!signs) continue;
      for (const char* of : {"signs", "sign_sums"}) {
        const double lost = run.steps[i]["codec_error"].at(of);
        CHECK((lost > 0.2 && lost < 0.95));
      }
    }
  }
}

TEST_CASE("0/1 Adam: a run that was stopped goes on bit for bit, in every phase") {
  OptimizerRuns runs = zero_one_runs();
  for (const int ranks : {1, 2}) {
    const Run expected = runs.run("ZeroOneAdam", ranks, {"--save_interval", "1"});
    // Before and after signs, at the switch, after a synchronisation, and between two.
    for (const int step : {2, 3, 5, 6, 8, 10, 12, 13}) {
      CAPTURE(ranks, step);
      const auto from = expected.output / "checkpoints" / ("step_" + std::to_string(step));
      const Run resumed = runs.run("ZeroOneAdam", ranks, {"--resume", from.string()});
      CHECK((read_bytes(resumed.output / "model.safetensors") ==
             read_bytes(expected.output / "model.safetensors")));
      CHECK(resumed.column("loss").back() == expected.column("loss").back());
    }
  }
}

TEST_CASE(
    "0/1 Adam: a checkpoint of two ranks goes on with one and with four, between synchronisations "
    "too") {
  OptimizerRuns runs = zero_one_runs();
  const Run two = runs.run("ZeroOneAdam", 2, {"--save_interval", "1"});
  for (const int ranks : {1, 4})
    for (const int step : {4, 13}) {
      CAPTURE(ranks, step);
      const auto from = two.output / "checkpoints" / ("step_" + std::to_string(step));
      const Run other = runs.run("ZeroOneAdam", ranks, {"--resume", from.string()});
      CHECK(other.column("loss").back() == Approx(two.column("loss").back()).epsilon(0.02));
    }
}

}  // namespace
}  // namespace dstrain::golden
