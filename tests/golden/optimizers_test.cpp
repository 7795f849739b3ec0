// Compares the optimizers with their definitions in fp64 (make_optimizers.py): losses and norms of twenty steps, whole
// and sharded.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/golden/run_program.h"

namespace dstrain::golden {
namespace {

using nlohmann::json;

constexpr double kTolerance = 1e-5;

void check_close(const Run& run, const json& steps, const std::string& key) {
  const std::vector<double> values = run.column(key);
  REQUIRE(values.size() == steps.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const double expected = steps[i].at(key).get<double>();
    CAPTURE(key, i, values[i], expected);
    CHECK(std::abs(values[i] - expected) <= kTolerance * expected);
  }
}

// The golden case with one of the optimizers.
json config_of(const Case& golden, const json& expected, const std::string& optimizer) {
  json config = golden.config;
  config.erase("scheduler");
  config["optimizer"] = {{"type", optimizer}, {"params", expected.at("params")}};
  config["dstrain"]["model"]["activation"] = "gelu";
  return config;
}

TEST_CASE("twenty steps of each optimizer follow its definition in fp64, at every stage") {
  const Case golden("gptlite");
  const std::string optimizer = GENERATE("Adagrad", "Lion", "Lamb", "Muon");
  const json expected = read_json(golden.folder / "optimizers.json").at(optimizer);
  const ScratchFolder scratch;
  for (const int ranks : {1, 2}) {
    std::string weights;
    for (const int stage : {0, 1, 2, 3}) {
      if (ranks == 1 && stage > 0) continue;  // one rank shards nothing
      CAPTURE(optimizer, ranks, stage);
      json config = config_of(golden, expected, optimizer);
      config["zero_optimization"] = {{"stage", stage}};
      config["dstrain"]["reduce"] = "boundary";
      const Run run = train(golden, config, scratch, std::to_string(10 * ranks + stage),
                            {"--num_gpus", std::to_string(ranks)});
      check_close(run, expected.at("steps"), "loss");
      check_close(run, expected.at("steps"), "grad_norm");
      const std::string bytes = read_bytes(run.output / "model.safetensors");
      if (stage == 0) weights = bytes;
      CHECK((bytes == weights));
    }
  }
}

TEST_CASE("both methods of Muon's iteration follow the definition") {
  const Case golden("gptlite");
  const json expected = read_json(golden.folder / "optimizers.json").at("Muon");
  const ScratchFolder scratch;
  json config = config_of(golden, expected, "Muon");
  const Run gram = train(golden, config, scratch, "gram");
  config["optimizer"]["params"]["ns_method"] = "standard";
  const Run plain = train(golden, config, scratch, "standard");
  check_close(plain, expected.at("steps"), "loss");
  CHECK(plain.column("loss") != gram.column("loss"));
}

}  // namespace
}  // namespace dstrain::golden
