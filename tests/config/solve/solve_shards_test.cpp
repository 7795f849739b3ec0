#include <catch2/catch.hpp>

#include "tests/config/config_fixture.h"

using namespace dstrain;
using namespace dstrain::test;

TEST_CASE("shards: FSDP's, MiCS's and hpZ's keys divide parameters among groups of ranks") {
  const auto shards = [](const std::vector<std::string>& sets) {
    return ask(trains_with(""), sets, 8).job().shards;
  };
  const std::string mics = "zero_optimization.mics_shard_size=",
                    hpz = "zero_optimization.zero_hpz_partition_size=",
                    stage3 = "zero_optimization.stage=3", hybrid = "dstrain.sharding=HYBRID_SHARD";
  CHECK(shards({stage3}) == ShardConfig{});
  CHECK(shards({hybrid}) == ShardConfig{0, true});
  CHECK(shards({hybrid, mics + "4"}) == ShardConfig{4, false});
  CHECK(shards({stage3, mics + "2"}) == ShardConfig{2, false});
  CHECK(shards({stage3, hpz + "2"}) == ShardConfig{2, false});
  CHECK(shards({stage3, hpz + "1", mics + "-1"}) == ShardConfig{});
  CHECK(shards({"zero_optimization.stage=2", hpz + "2"}) == ShardConfig{});
  CHECK(shards({"dstrain.sharding=FULL_SHARD", mics + "2"}) == ShardConfig{});
  const auto quantizes = [](const std::vector<std::string>& sets) {
    return ask(trains_with(""), sets, 8).job().quantize;
  };
  const std::string weights = "zero_optimization.zero_quantized_weights=true";
  CHECK(quantizes({stage3, weights}) == QuantizeConfig{.weights = true});
  CHECK(quantizes({"zero_optimization.stage=2", weights}) == QuantizeConfig{});
  const std::string gradients = "zero_optimization.zero_quantized_gradients=true";
  CHECK(quantizes({stage3, gradients}) == QuantizeConfig{.gradients = true});
  // Without shards the ranks of a host are groups for gradients alone.
  CHECK(shards({stage3, gradients}) == ShardConfig{0, true, false});
  CHECK(shards({stage3, gradients, "dstrain.sharding=FULL_SHARD"}) == ShardConfig{0, true, false});
  CHECK(shards({stage3, gradients, hpz + "2"}) == ShardConfig{2, false, true});
  CHECK(shards({hybrid, gradients}) == ShardConfig{0, true, true});
  CHECK_THAT(
      ask(trains_with(""), {stage3, gradients, "dstrain.comm_hook.type=fp16_compress"}, 8).error(),
      Catch::Contains("zero_quantized_gradients says how gradients travel: keep one of the two"));
  CHECK_THAT(ask(trains_with(""), {stage3, hpz + "3"}, 8).error(),
             Catch::EndsWith("zero_optimization.zero_hpz_partition_size: 3 does not divide the 8 "
                             "ranks (--num_gpus): expected a divisor"));
  CHECK_THAT(
      ask(trains_with(""), {stage3, mics + "16"}, 8).error(),
      Catch::EndsWith("zero_optimization.mics_shard_size: removed from DeepSpeed (0.19.8); "
                      "here 16 does not divide the 8 ranks (--num_gpus): expected a divisor"));
}

TEST_CASE("shards: what one data-parallel rank has no peer to send to is said to have no effect") {
  const std::string zero = "zero_optimization.";
  const std::vector<std::string> all{zero + "stage=3", zero + "zero_quantized_weights=true",
                                     zero + "zero_quantized_gradients=true",
                                     zero + "zeropp_loco_param={}", zero + "mics_shard_size=1"};
  const auto verdict_of = [&](const std::string& key, int ranks) {
    return verdict(ask(trains_with(""), all, ranks).check(), zero + key);
  };
  CHECK(verdict_of("zero_quantized_weights", 1) ==
        "no_effect: one data-parallel rank: there are no parameters to send");
  for (const char* key : {"zero_quantized_gradients", "zeropp_loco_param"})
    CHECK(verdict_of(key, 1) ==
          "no_effect: one data-parallel rank: there are no gradients to send");
  for (const char* key : {"zero_quantized_weights", "zero_quantized_gradients"})
    CHECK_THAT(verdict_of(key, 2), Catch::StartsWith("honoured"));
  CHECK(verdict_of("mics_shard_size", 2) ==
        "honoured: every rank has all parameters, which travel as int8 once a step");
  for (const char* hook : {"powerSGD", "batched_powerSGD", "post_localSGD"})
    CHECK(verdict(ask(trains_with(""), {std::string("dstrain.comm_hook.type=") + hook}, 1).check(),
                  "dstrain.comm_hook.type") ==
          "no_effect: one data-parallel rank: there are no gradients to send");
}

TEST_CASE("LoCo: zeropp_loco_param is the error feedback of quantized gradients") {
  const std::string stage3 = "zero_optimization.stage=3",
                    loco = "zero_optimization.zeropp_loco_param",
                    gradients = "zero_optimization.zero_quantized_gradients=true";
  const auto quantizes = [](const std::vector<std::string>& sets) {
    return ask(trains_with(""), sets, 8).job().quantize;
  };
  CHECK(quantizes({stage3, gradients, loco + "={}"}) ==
        QuantizeConfig{.gradients = true, .feedback = true});
  CHECK(quantizes({stage3, gradients, loco + ".err_beta=0.5", loco + ".reset_T=64"}) ==
        QuantizeConfig{.gradients = true, .feedback = true, .error_beta = 0.5f, .error_steps = 64});
  CHECK(quantizes({stage3, gradients, loco + "=null"}) == QuantizeConfig{.gradients = true});
  CHECK_FALSE(quantizes({"zero_optimization.stage=2", gradients, loco + "={}"}).feedback);
  CHECK_THAT(ask(trains_with(""), {stage3, loco + "={}"}, 8).error(),
             Catch::Contains("set zero_quantized_gradients, or remove it"));
  CHECK_THAT(ask(trains_with(""), {stage3, gradients, loco + ".reset_T=0"}, 8).error(),
             Catch::Contains("reset_T"));
  CHECK_THAT(ask(trains_with(""), {stage3, gradients, loco + ".err_beta=1.5"}, 8).error(),
             Catch::Contains("err_beta"));
}
