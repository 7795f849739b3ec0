// Whole runs of the first golden case on four ranks at stage 3, on this machine or on two pretended hosts.
#pragma once

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/golden/run_program.h"

namespace dstrain::golden {

inline constexpr int kHalf = 3;  // steps before the checkpoint, and after it
inline constexpr int kShardRanks = 4;

// The environment of the ranks: two pretended hosts of two ranks each, or the machine as it is.
class Hosts {
 public:
  explicit Hosts(bool two) {
    if (two) ::setenv("DSTRAIN_COMM", "hosts:2", 1);
  }
  ~Hosts() { ::unsetenv("DSTRAIN_COMM"); }
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;
};

class ShardRuns {
 public:
  Run run(const nlohmann::json& zero, int steps, bool hosts,
          std::vector<std::string> arguments = {}, const std::string& sharding = "") {
    nlohmann::json config = golden_.config;
    config["bf16"] = {{"enabled", true}};
    config["train_batch_size"] = 16;
    config["gradient_accumulation_steps"] = 2;
    config.erase("train_micro_batch_size_per_gpu");
    config["zero_optimization"] = zero;
    config["zero_optimization"]["stage3_max_reuse_distance"] = 0;
    config["zero_optimization"]["stage3_param_persistence_threshold"] = 0;
    config["dstrain"]["steps"] = steps;
    config["dstrain"]["eval_interval"] = 2;
    config["dstrain"]["reduce"] = "micro_batch";
    if (!sharding.empty()) config["dstrain"]["sharding"] = sharding;
    arguments.insert(arguments.end(), {"--num_gpus", std::to_string(kShardRanks)});
    if (hosts) arguments.insert(arguments.end(), {"--launcher", "openmpi"});
    const Hosts environment(hosts);
    return train(golden_, config, scratch_, "run" + std::to_string(runs_++), arguments);
  }
  Run first_half(const nlohmann::json& zero, bool hosts = false, const std::string& sharding = "") {
    return run(zero, kHalf, hosts, {"--save_interval", std::to_string(kHalf)}, sharding);
  }
  Run second_half(const Run& first, const nlohmann::json& zero, bool hosts = false,
                  const std::string& sharding = "") {
    return run(zero, 2 * kHalf, hosts, {"--resume", first.output.string()}, sharding);
  }

 private:
  const Case golden_{"gptlite"};
  const ScratchFolder scratch_;
  int runs_ = 0;
};

inline void check_equal(const Run& run, const Run& expected) {
  REQUIRE(run.steps.size() == expected.steps.size());
  for (const char* column : {"loss", "grad_norm", "lr"})
    CHECK(run.column(column) == expected.column(column));
  CHECK(read_bytes(run.output / "model.safetensors") ==
        read_bytes(expected.output / "model.safetensors"));
}

inline std::vector<double> validations(const Run& run) {
  std::vector<double> losses;
  for (const std::string& text : {read_bytes(run.output / "metrics.jsonl")})
    for (size_t at = text.find("\"val_loss\":"); at != std::string::npos;
         at = text.find("\"val_loss\":", at + 1))
      losses.push_back(std::stod(text.substr(at + 11)));
  return losses;
}

inline double sent(const Run& run) {
  return run.column("comm_bytes").back();
}

}  // namespace dstrain::golden
