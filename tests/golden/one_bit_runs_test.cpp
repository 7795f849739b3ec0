// Whole runs of optimizers whose ranks send signs: what they send and measure, and what a run is that was stopped before
// its second moment is frozen, or after, or goes on with another number of ranks or at another stage.
#include <catch2/catch.hpp>

#include "tests/golden/optimizer_runs.h"

namespace dstrain::golden {
namespace {

// An optimizer, what it is until it freezes, and what each of its steps sends: G: whole gradients, S: signs, -: nothing.
struct SignOptimizer {
  const char *name, *plain, *sends;
  nlohmann::json phases;  // its parameters that say so
  double close;           // how close its losses come to those of whole gradients
  bool shards;            // it runs at stage 1
  std::vector<int> saved,
      others;  // steps after which it goes on, and goes on with other numbers of ranks
};
// The second moment of the first two is frozen after 3 steps; where masters are sharded step 4 gathers the momentum.
// ZeroOneAdam's is frozen after 5 steps; 6, 7, 9, 11 and 14 synchronise.
std::vector<SignOptimizer> sign_optimizers() {
  const nlohmann::json freezes{{"freeze_step", 3}}, grows{{"var_freeze_step", 5},
                                                          {"var_update_scaler", 2},
                                                          {"local_step_scaler", 2},
                                                          {"local_step_clipper", 3}};
  return {
      {"OneBitAdam", "AdamW", "GGGSSSSS", freezes, 0.02, true, {2, 3, 4, 6}, {2, 4}},
      {"OneBitLamb", "Lamb", "GGGSSSSS", freezes, 0.02, true, {2, 3, 4, 6}, {2, 4}},
      {"ZeroOneAdam",
       "AdamW",
       "GGSGSSS-S-S--S",
       grows,
       0.05,
       false,
       {2, 3, 5, 6, 8, 10, 12, 13},
       {4, 13}},
  };
}

class SignRuns {
 public:
  explicit SignRuns(const SignOptimizer& optimizer)
      : of_(optimizer),
        steps_(std::string(optimizer.sends).size()),
        runs_({{"steps_per_print", 1}, {"dstrain", {{"steps", steps_}, {"eval_interval", 7}}}},
              optimizer.phases) {}

  size_t steps() const { return steps_; }
  Run plain(int ranks) { return runs_.run(of_.plain, ranks); }
  Run run(int ranks, int stage = 0, std::vector<std::string> arguments = {}) {
    arguments.insert(arguments.end(),
                     {"--set", "zero_optimization.stage=" + std::to_string(stage)});
    return runs_.run(of_.name, ranks, arguments);
  }
  Run saved(int ranks, int stage = 0) { return run(ranks, stage, {"--save_interval", "1"}); }
  Run resumed(const Run& from, int step, int ranks, int stage = 0) {
    const auto folder = from.output / "checkpoints" / ("step_" + std::to_string(step));
    return run(ranks, stage, {"--resume", folder.string()});
  }

 private:
  const SignOptimizer& of_;
  const size_t steps_;
  OptimizerRuns runs_;
};

std::string weights_of(const Run& run) {
  return read_bytes(run.output / "model.safetensors");
}

TEST_CASE("sign optimizers send gradients, signs or nothing, measure signs, and learn as plain") {
  for (const SignOptimizer& optimizer : sign_optimizers())
    for (const int ranks : {1, 2, 4}) {
      SignRuns runs(optimizer);
      const Run plain = runs.plain(ranks), run = runs.run(ranks);
      REQUIRE(run.steps.size() == runs.steps());
      const double whole = plain.column("comm_bytes")[0];
      bool same = true;  // the weights are those of the plain optimizer
      for (size_t i = 0; i < runs.steps(); ++i) {
        CAPTURE(optimizer.name, ranks, i);
        const double loss = run.column("loss")[i], expected = plain.column("loss")[i];
        if (same)
          CHECK(loss == expected);
        else
          CHECK(loss == Approx(expected).epsilon(optimizer.close));
        const char sends = optimizer.sends[i];
        same = same && sends == 'G';
        const double sent = run.column("comm_bytes")[i];
        const bool signs = sends == 'S' && ranks > 1;
        if (sends == 'G') CHECK(sent == whole);
        if (sends == 'S') CHECK(sent <= 0.1 * whole);  // messages of less than 1 KiB do not count
        if (sends == '-') CHECK(sent == 0);
        REQUIRE(run.steps[i].contains("codec_error") == signs);
        if (!signs) continue;
        for (const char* of : {"signs", "sign_sums"}) {
          const double lost = run.steps[i]["codec_error"].at(of);
          CHECK((lost > 0.2 && lost < 0.95));
        }
      }
      CHECK(run.column("loss").back() != plain.column("loss").back());
    }
}

TEST_CASE("sign optimizers: a run that was stopped goes on bit for bit, in every phase") {
  for (const SignOptimizer& optimizer : sign_optimizers())
    for (const int ranks : {1, 2}) {
      SignRuns runs(optimizer);
      const Run expected = runs.saved(ranks);
      for (const int step : optimizer.saved) {
        CAPTURE(optimizer.name, ranks, step);
        const Run resumed = runs.resumed(expected, step, ranks);
        CHECK((weights_of(resumed) == weights_of(expected)));
        CHECK(resumed.column("loss").back() == expected.column("loss").back());
      }
    }
}

TEST_CASE("sign optimizers: stages 0 and 1 go on from each other's checkpoints, bit for bit") {
  for (const SignOptimizer& optimizer : sign_optimizers())
    for (const int ranks : {2, 4}) {
      if (!optimizer.shards) continue;
      SignRuns runs(optimizer);
      const Run whole = runs.saved(ranks), sharded = runs.saved(ranks, 1);
      const std::string expected = weights_of(whole);
      CHECK((weights_of(sharded) == expected));
      for (const int step : optimizer.saved)
        for (const auto& [from, stage] :
             {std::pair{&whole, 1}, std::pair{&sharded, 1}, std::pair{&sharded, 0}}) {
          CAPTURE(optimizer.name, ranks, step, stage);
          CHECK((weights_of(runs.resumed(*from, step, ranks, stage)) == expected));
        }
    }
}

TEST_CASE("sign optimizers: a checkpoint of two ranks goes on with one and with four") {
  for (const SignOptimizer& optimizer : sign_optimizers())
    for (const int stage : {0, 1}) {
      if (stage > 0 && !optimizer.shards) continue;
      SignRuns runs(optimizer);
      const Run two = runs.saved(2, stage);
      for (const int ranks : {1, 4})
        for (const int step : optimizer.others) {
          CAPTURE(optimizer.name, stage, ranks, step);
          const Run whole = runs.resumed(two, step, ranks);
          CHECK(whole.column("loss").back() == Approx(two.column("loss").back()).epsilon(0.02));
          if (stage > 0)
            CHECK((weights_of(runs.resumed(two, step, ranks, 1)) == weights_of(whole)));
        }
    }
}

}  // namespace
}  // namespace dstrain::golden
