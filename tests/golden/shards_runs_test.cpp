// HYBRID_SHARD, MiCS and hpZ divide parameters among groups of ranks. A whole run with them has the bits of one without
// them, and its checkpoints are those of any other run.
#include <fmt/core.h>
#include <stdlib.h>

#include <catch2/catch.hpp>

#include "tests/golden/run_program.h"

using namespace dstrain::golden;
using nlohmann::json;

namespace {

constexpr int kHalf = 3;  // steps before the checkpoint, and after it
constexpr int kRanks = 4;

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
  Run run(const json& zero, int steps, bool hosts, std::vector<std::string> arguments = {},
          const std::string& sharding = "") {
    json config = golden_.config;
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
    arguments.insert(arguments.end(), {"--num_gpus", std::to_string(kRanks)});
    if (hosts) arguments.insert(arguments.end(), {"--launcher", "openmpi"});
    const Hosts environment(hosts);
    return train(golden_, config, scratch_, "run" + std::to_string(runs_++), arguments);
  }
  Run first_half(const json& zero, bool hosts = false, const std::string& sharding = "") {
    return run(zero, kHalf, hosts, {"--save_interval", std::to_string(kHalf)}, sharding);
  }
  Run second_half(const Run& first, const json& zero, bool hosts = false,
                  const std::string& sharding = "") {
    return run(zero, 2 * kHalf, hosts, {"--resume", first.output.string()}, sharding);
  }

 private:
  const Case golden_{"gptlite"};
  const ScratchFolder scratch_;
  int runs_ = 0;
};

void check_equal(const Run& run, const Run& expected) {
  REQUIRE(run.steps.size() == expected.steps.size());
  for (const char* column : {"loss", "grad_norm", "lr"})
    CHECK(run.column(column) == expected.column(column));
  CHECK(read_bytes(run.output / "model.safetensors") ==
        read_bytes(expected.output / "model.safetensors"));
}

std::vector<double> validations(const Run& run) {
  std::vector<double> losses;
  for (const std::string& text : {read_bytes(run.output / "metrics.jsonl")})
    for (size_t at = text.find("\"val_loss\":"); at != std::string::npos;
         at = text.find("\"val_loss\":", at + 1))
      losses.push_back(std::stod(text.substr(at + 11)));
  return losses;
}

double sent(const Run& run) {
  return run.column("comm_bytes").back();
}

}  // namespace

TEST_CASE("HYBRID_SHARD on two hosts, MiCS and hpZ have the losses and weights of stage 3") {
  ShardRuns runs;
  const Run expected = runs.run({{"stage", 3}}, 2 * kHalf, false);
  REQUIRE(expected.steps.size() == 2 * kHalf);
  REQUIRE(validations(expected).size() == kHalf);
  const Run hybrid = runs.run({{"stage", 3}}, 2 * kHalf, true, {}, "HYBRID_SHARD");
  const Run mics = runs.run({{"stage", 3}, {"mics_shard_size", 2}}, 2 * kHalf, false);
  const Run hpz = runs.run({{"stage", 3}, {"zero_hpz_partition_size", 2}}, 2 * kHalf, false);
  const Run zero2 = runs.run(json::object(), 2 * kHalf, true, {}, "_HYBRID_SHARD_ZERO2");
  for (const Run* run : {&hybrid, &mics, &hpz, &zero2}) {
    check_equal(*run, expected);
    CHECK(validations(*run) == validations(expected));
    CHECK(sent(*run) < sent(expected));
  }
  // The hosts have two ranks each.
  CHECK(sent(hybrid) == sent(mics));
  CHECK(sent(hpz) == sent(mics));
  // All ranks of one machine are one shard: plain stage 3.
  const Run one_host = runs.run({{"stage", 3}}, 2 * kHalf, false, {}, "HYBRID_SHARD");
  check_equal(one_host, expected);
  CHECK(sent(one_host) == sent(expected));
}

TEST_CASE("a checkpoint of shards resumes with any other setting, and the other way round") {
  ShardRuns runs;
  const json plain = {{"stage", 3}}, whole = {{"stage", 0}},
             mics = {{"stage", 3}, {"mics_shard_size", 2}};
  const Run first = runs.first_half(plain), first_mics = runs.first_half(mics);
  const Run expected = runs.second_half(first, plain);
  check_equal(runs.second_half(first_mics, plain), expected);
  check_equal(runs.second_half(first_mics, whole), expected);
  check_equal(runs.second_half(first_mics, mics), expected);
  check_equal(runs.second_half(first, mics), expected);
  check_equal(runs.second_half(runs.first_half(plain, true, "HYBRID_SHARD"), whole), expected);
}
