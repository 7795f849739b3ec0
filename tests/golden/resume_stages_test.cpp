// A checkpoint holds whole tensors, so a run can resume at another stage, on another number of ranks and with or
// without offload. The bits must be those of a run that never changed its stage.
#include <fmt/core.h>

#include <catch2/catch.hpp>
#include <cstdlib>

#include "tests/golden/run_program.h"

using namespace dstrain::golden;
using nlohmann::json;

namespace {

constexpr int kHalf = 3;  // steps before the checkpoint, and after it

struct Point {
  int stage, ranks;
};

std::string label(const std::string& what, Point p) {
  return fmt::format("{}-stage{}-ranks{}", what, p.stage, p.ranks);
}

json config_of(const Case& golden, Point p, int steps) {
  json config = golden.config;
  config["bf16"] = {{"enabled", true}};
  config["train_batch_size"] = 12;
  config["train_micro_batch_size_per_gpu"] = 2;
  config.erase("gradient_accumulation_steps");
  config["zero_optimization"] = {{"stage", p.stage},
                                 {"stage3_max_reuse_distance", 0},
                                 {"stage3_param_persistence_threshold", 0}};
  if (p.stage > 0 && (p.stage + p.ranks) % 2 == 0)
    config["zero_optimization"]["offload_optimizer"] = {{"device", "cpu"},
                                                        {"ratio", p.stage == 3 ? 0.5 : 1.0}};
  config["dstrain"]["reduce"] = "boundary";
  config["dstrain"]["steps"] = steps;
  return config;
}

std::vector<std::string> on(int ranks) {
  return {"--num_gpus", std::to_string(ranks)};
}

}  // namespace

TEST_CASE("saved at stage s on n ranks, resumed at stage t on m ranks: the same bits") {
  const std::string optimizer = GENERATE("AdamW", "AdamW8bit");
  CAPTURE(optimizer);
  Case golden("gptlite");
  golden.config["optimizer"]["type"] = optimizer;
  if (optimizer == "AdamW8bit") golden.config["optimizer"]["params"]["min_8bit_size"] = 300;
  const ScratchFolder scratch;
  // DSTRAIN_ALL_STAGES runs all 144 pairs; otherwise a selection with every pair of rank counts.
  const bool all = std::getenv("DSTRAIN_ALL_STAGES") != nullptr;

  std::map<std::string, Run> saved;
  for (int stage = 0; stage < 4; ++stage)
    for (int ranks = 1; ranks <= 3; ++ranks) {
      const Point p{stage, ranks};
      std::vector<std::string> arguments = on(ranks);
      arguments.insert(arguments.end(), {"--save_interval", std::to_string(kHalf)});
      saved[label("save", p)] =
          train(golden, config_of(golden, p, kHalf), scratch, label("save", p), arguments);
    }
  const auto resume = [&](Point from, Point to) {
    std::vector<std::string> arguments = on(to.ranks);
    arguments.insert(arguments.end(), {"--resume", saved.at(label("save", from)).output.string()});
    return train(golden, config_of(golden, to, 2 * kHalf), scratch,
                 label(label("resume", from) + "-to", to), arguments);
  };

  int pairs = 0;
  for (int n = 1; n <= 3; ++n)
    for (int m = 1; m <= 3; ++m) {
      const Run expected = resume({0, n}, {0, m});
      REQUIRE(expected.steps.size() == kHalf);
      for (int s = 0; s < 4; ++s)
        for (int t = 0; t < 4; ++t) {
          if (!all && t != (s + n + 2 * m) % 4) continue;
          if (s == 0 && t == 0) continue;
          INFO("stage " << s << " on " << n << " ranks, then stage " << t << " on " << m);
          const Run run = resume({s, n}, {t, m});
          CHECK(run.column("loss") == expected.column("loss"));
          CHECK(run.column("grad_norm") == expected.column("grad_norm"));
          CHECK(read_bytes(run.output / "model.safetensors") ==
                read_bytes(expected.output / "model.safetensors"));
          ++pairs;
        }
    }
  CHECK(pairs >= (all ? 135 : 30));
}
