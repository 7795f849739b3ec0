// Runs with label smoothing and a z-loss against PyTorch's in fp64 (make_losses.py), however ranks divide them.
#include <fmt/core.h>

#include <catch2/catch.hpp>

#include "tests/golden/run_program.h"
#include "tests/support/distance.h"

namespace dstrain::golden {
namespace {

using nlohmann::json;

struct Layout {
  const char* name;
  int ranks;
  json changes;
};

TEST_CASE("smoothed losses and z-losses follow PyTorch's, and validations are without them") {
  constexpr double kTolerance = 1e-5;
  constexpr int kSteps = 8, kValidationSamples = 7;
  const Case golden("gptlite");
  const ScratchFolder scratch;
  const json expected = read_json(golden.folder / "losses.json");
  const Layout layouts[] = {
      {"alone", 1, {{"dstrain", {{"loss_chunks", 3}}}}},
      {"sharded", 2, {{"zero_optimization", {{"stage", 3}}}}},
      {"divided", 3, {{"tensor_parallel", {{"autotp_size", 3}}}}},
  };
  for (const json& expect : expected.at("cases"))
    for (const Layout& layout : layouts) {
      json config = golden.config;
      config.erase("scheduler");
      config["dstrain"]["steps"] = kSteps;
      config["dstrain"]["eval_samples"] = kValidationSamples;
      for (const char* key : {"label_smoothing", "z_loss"}) config["dstrain"][key] = expect.at(key);
      config.merge_patch(layout.changes);
      const std::string label = fmt::format("{} smoothing {} z {}", layout.name,
                                            expect.at("label_smoothing").get<double>(),
                                            expect.at("z_loss").get<double>());
      CAPTURE(label);
      const Run run =
          train(golden, config, scratch, label, {"--num_gpus", std::to_string(layout.ranks)});
      CHECK(largest_relative_distance(expect.at("loss").get<std::vector<double>>(),
                                      run.column("loss")) <= kTolerance);
      CHECK(largest_relative_distance(expect.at("grad_norm").get<std::vector<double>>(),
                                      run.column("grad_norm")) <= kTolerance);
      REQUIRE(run.validations().size() == 1);
      CHECK(run.validations()[0] ==
            Approx(expect.at("val_loss").get<double>()).epsilon(kTolerance));
    }
}

}  // namespace
}  // namespace dstrain::golden
