// Validation in the built program: the number of ranks does not change its loss.
#include <fmt/core.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>

#include "tests/golden/run_program.h"

namespace dstrain::golden {
namespace {

using nlohmann::json;

// Returns a configuration of one step that changes no weight, followed by a validation.
json config_of(const Case& golden, int stage, int micro_batch, int ranks, int64_t samples) {
  json config = golden.config;
  config["gradient_accumulation_steps"] = 1;
  config["train_micro_batch_size_per_gpu"] = micro_batch;
  config["train_batch_size"] = micro_batch * ranks;
  config["optimizer"] = {{"type", "SGD"}, {"params", {{"lr", 0}}}};
  config.erase("scheduler");
  config["zero_optimization"] = {{"stage", stage}, {"stage3_param_persistence_threshold", 0}};
  config["dstrain"]["steps"] = 1;
  config["dstrain"]["eval_interval"] = 1;
  config["dstrain"]["eval_samples"] = samples;
  if (golden.name != "benchmark") config["dstrain"]["data"]["val_fraction"] = 0.4;
  return config;
}

double validation_loss(const Case& golden, const json& config, int ranks) {
  const ScratchFolder scratch;
  const Run run = train(golden, config, scratch, "run", {"--num_gpus", std::to_string(ranks)});
  const std::vector<double> losses = run.validations();
  REQUIRE(!losses.empty());
  return losses.front();
}

TEST_CASE("the loss of a validation does not depend on the number of ranks") {
  ::setenv("OMP_NUM_THREADS", "1", 1);
  const Case golden(GENERATE("gptlite", "benchmark"));
  const auto [micro_batch, samples] = GENERATE(table<int, int>({{4, 24}, {5, 24}, {2, 1}, {3, 7}}));
  CAPTURE(golden.name, micro_batch, samples);
  const double one = validation_loss(golden, config_of(golden, 0, micro_batch, 1, samples), 1);
  for (const int ranks : {2, 3, 4}) {
    const int stage = ranks == 3 ? 3 : 0;  // at stage 3 all ranks must take part in every gather
    CAPTURE(ranks, stage);
    CHECK(validation_loss(golden, config_of(golden, stage, micro_batch, ranks, samples), ranks) ==
          one);
  }
  ::unsetenv("OMP_NUM_THREADS");
}

TEST_CASE("a validation takes the first samples of its part, and all where there are fewer") {
  const Case golden("gptlite");
  const auto loss = [&](int micro_batch, int64_t samples) {
    return validation_loss(golden, config_of(golden, 0, micro_batch, 1, samples), 1);
  };
  // The loss of 9 samples is the mean of their losses.
  double sum = 0, before = 0;
  for (int64_t n = 1; n <= 9; ++n) {
    const double total = loss(1, n) * static_cast<double>(n);
    CHECK(std::abs(total - before) > 0.1);
    before = sum = total;
  }
  CHECK(loss(4, 9) == Approx(sum / 9).epsilon(1e-6));
  const int64_t part = 61;  // of 801 characters in samples of 13
  CHECK(loss(3, part) != loss(3, part - 1));
  CHECK(loss(3, part) == loss(3, 1000000));
}

}  // namespace
}  // namespace dstrain::golden
