// Whole runs of 1-bit Adam and 1-bit Lamb: what they send, and what a run is that was stopped before its second moment
// is frozen, or after.
#include <catch2/catch.hpp>

#include "tests/golden/optimizer_runs.h"

namespace dstrain::golden {
namespace {

constexpr int kSteps = 8, kFreeze = 3;

OptimizerRuns one_bit_runs() {
  return {{{"dstrain", {{"steps", kSteps}}}}, {{"freeze_step", kFreeze}}};
}

// A sign optimizer and what it is until it freezes.
struct Signs {
  const char *optimizer, *plain;
};
constexpr Signs kSigns[] = {{"OneBitAdam", "AdamW"}, {"OneBitLamb", "Lamb"}};

TEST_CASE(
    "1-bit Adam and Lamb are AdamW and Lamb until they freeze, and then send a tenth at most") {
  OptimizerRuns runs = one_bit_runs();
  for (const Signs& signs : kSigns)
    for (const int ranks : {1, 2, 4}) {
      const Run plain = runs.run(signs.plain, ranks), run = runs.run(signs.optimizer, ranks);
      REQUIRE(run.steps.size() == kSteps);
      for (int i = 0; i < kSteps; ++i) {
        const auto step = static_cast<size_t>(i);
        CAPTURE(signs.optimizer, ranks, i);
        const double loss = run.column("loss")[step], expected = plain.column("loss")[step];
        if (i <= kFreeze)
          CHECK(loss == expected);
        else
          CHECK(loss == Approx(expected).epsilon(0.02));
        const double sent = run.column("comm_bytes")[step],
                     of_plain = plain.column("comm_bytes")[0];
        if (i < kFreeze)
          CHECK(sent == of_plain);
        else
          CHECK(sent <= 0.1 * of_plain);
      }
      CHECK(run.column("loss").back() != plain.column("loss").back());
    }
}

TEST_CASE("1-bit Adam and Lamb: a stopped run goes on bit for bit, before it freezes and after") {
  OptimizerRuns runs = one_bit_runs();
  for (const Signs& signs : kSigns) {
    const Run expected = runs.run(signs.optimizer, 2, {"--save_interval", "1"});
    for (const char* step : {"step_2", "step_3", "step_4", "step_6"}) {
      CAPTURE(signs.optimizer, step);
      const Run resumed = runs.run(signs.optimizer, 2,
                                   {"--resume", (expected.output / "checkpoints" / step).string()});
      CHECK((read_bytes(resumed.output / "model.safetensors") ==
             read_bytes(expected.output / "model.safetensors")));
    }
  }
}

TEST_CASE("1-bit Adam and Lamb: stages 0 and 1 go on from each other's checkpoints, bit for bit") {
  OptimizerRuns runs = one_bit_runs();
  const auto run = [&](const char* optimizer, int ranks, int stage,
                       std::vector<std::string> arguments) {
    arguments.insert(arguments.end(),
                     {"--set", "zero_optimization.stage=" + std::to_string(stage)});
    return runs.run(optimizer, ranks, arguments);
  };
  for (const Signs& signs : kSigns)
    for (const int ranks : {2, 4}) {
      const Run whole = run(signs.optimizer, ranks, 0, {"--save_interval", "1"}),
                sharded = run(signs.optimizer, ranks, 1, {"--save_interval", "1"});
      const std::string expected = read_bytes(whole.output / "model.safetensors");
      CHECK((read_bytes(sharded.output / "model.safetensors") == expected));
      // Before it freezes, at the switch, after the step that gathers the momentum, and later.
      for (const char* step : {"step_2", "step_3", "step_4", "step_6"})
        for (const auto& [from, stage] :
             {std::pair{&whole, 1}, std::pair{&sharded, 1}, std::pair{&sharded, 0}}) {
          CAPTURE(signs.optimizer, ranks, step, stage);
          const Run resumed = run(signs.optimizer, ranks, stage,
                                  {"--resume", (from->output / "checkpoints" / step).string()});
          CHECK((read_bytes(resumed.output / "model.safetensors") == expected));
        }
    }
}

TEST_CASE("1-bit Adam and Lamb: checkpoints of stage 1 go on alike with other numbers of ranks") {
  OptimizerRuns runs = one_bit_runs();
  for (const Signs& signs : kSigns) {
    const Run two = runs.run(signs.optimizer, 2,
                             {"--save_interval", "1", "--set", "zero_optimization.stage=1"});
    for (const int ranks : {1, 4})
      for (const char* step : {"step_2", "step_4"}) {
        CAPTURE(signs.optimizer, ranks, step);
        const std::string from = (two.output / "checkpoints" / step).string();
        const Run whole = runs.run(signs.optimizer, ranks, {"--resume", from}),
                  sharded = runs.run(signs.optimizer, ranks,
                                     {"--resume", from, "--set", "zero_optimization.stage=1"});
        CHECK(whole.column("loss").back() == Approx(two.column("loss").back()).epsilon(0.02));
        CHECK((read_bytes(sharded.output / "model.safetensors") ==
               read_bytes(whole.output / "model.safetensors")));
      }
  }
}

TEST_CASE("1-bit Adam and Lamb: a checkpoint of two ranks goes on with four, and with one") {
  OptimizerRuns runs = one_bit_runs();
  for (const Signs& signs : kSigns) {
    const Run two = runs.run(signs.optimizer, 2, {"--save_interval", "1"});
    for (const int ranks : {1, 4})
      for (const char* step : {"step_2", "step_4"}) {
        CAPTURE(signs.optimizer, ranks, step);
        const Run other = runs.run(signs.optimizer, ranks,
                                   {"--resume", (two.output / "checkpoints" / step).string()});
        CHECK(other.column("loss").back() == Approx(two.column("loss").back()).epsilon(0.02));
      }
  }
}

}  // namespace
}  // namespace dstrain::golden
