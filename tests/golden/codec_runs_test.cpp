// Whole runs in which parameters and gradients travel quantized: the same bits with shards and without, in one go and
// resumed, and the errors that are measured.
#include "tests/golden/shard_runs.h"

using namespace dstrain::golden;
using nlohmann::json;

namespace {

// Returns section zero_optimization with quantized weights.
json quantized(json zero) {
  zero["stage"] = 3;
  zero["zero_quantized_weights"] = true;
  return zero;
}

}  // namespace

TEST_CASE("quantized weights: the same run with shards, on hosts and without, near the plain one") {
  ShardRuns runs;
  const Run plain = runs.run({{"stage", 3}}, 2 * kHalf, false);
  const Run expected = runs.run(quantized({}), 2 * kHalf, false);
  const Run mics = runs.run(quantized({{"mics_shard_size", 2}}), 2 * kHalf, false);
  const Run whole = runs.run(quantized({{"mics_shard_size", 1}}), 2 * kHalf, false);
  const Run hybrid = runs.run(quantized({}), 2 * kHalf, true, {}, "HYBRID_SHARD");
  for (const Run* run : {&mics, &whole, &hybrid}) {
    check_equal(*run, expected);
    CHECK(validations(*run) == validations(expected));
    CHECK(sent(*run) < sent(expected));
  }
  CHECK(sent(expected) < sent(plain));
  REQUIRE(expected.steps.size() == plain.steps.size());
  for (size_t i = 0; i < plain.steps.size(); ++i)
    CHECK(expected.column("loss")[i] == Approx(plain.column("loss")[i]).epsilon(0.01));
  CHECK(expected.column("loss") != plain.column("loss"));
}

TEST_CASE("quantized weights: a run that was stopped goes on bit for bit") {
  ShardRuns runs;
  const json mics = quantized({{"mics_shard_size", 2}});
  const Run expected = runs.run(mics, 2 * kHalf, false);
  const Run first = runs.first_half(mics);
  const Run second = runs.second_half(first, mics);
  CHECK(read_bytes(second.output / "model.safetensors") ==
        read_bytes(expected.output / "model.safetensors"));
}

TEST_CASE("quantized gradients: on two hosts, resumed bit for bit, near the plain run") {
  ShardRuns runs;
  const json all = {{"stage", 3},
                    {"mics_shard_size", 2},
                    {"zero_quantized_weights", true},
                    {"zero_quantized_gradients", true}};
  const Run plain = runs.run({{"stage", 3}}, 2 * kHalf, false);
  const Run expected = runs.run(all, 2 * kHalf, true);
  check_equal(runs.run(all, 2 * kHalf, false), expected);  // the groups are the same
  CHECK(sent(expected) < 0.5 * sent(plain));
  for (size_t i = 0; i < plain.steps.size(); ++i)
    CHECK(expected.column("loss")[i] == Approx(plain.column("loss")[i]).epsilon(0.01));
  const Run second = runs.second_half(runs.first_half(all, true), all, true);
  CHECK(read_bytes(second.output / "model.safetensors") ==
        read_bytes(expected.output / "model.safetensors"));
}

TEST_CASE("LoCo: on two hosts and in groups, resumed bit for bit, near the plain run") {
  ShardRuns runs;
  const json all = {{"stage", 3},
                    {"mics_shard_size", 2},
                    {"zero_quantized_gradients", true},
                    {"zeropp_loco_param", {{"err_beta", 0.8}, {"reset_T", 4}}}};
  json without = all;
  without.erase("zeropp_loco_param");
  const Run plain = runs.run({{"stage", 3}}, 2 * kHalf, false);
  const Run expected = runs.run(all, 2 * kHalf, true);
  check_equal(runs.run(all, 2 * kHalf, false), expected);  // the groups are the same
  const Run quantized = runs.run(without, 2 * kHalf, false);
  CHECK(sent(expected) == sent(quantized));
  // Nothing was lost before step 1. Its second micro-batch already has what the first one lost.
  CHECK(expected.column("loss")[0] == quantized.column("loss")[0]);
  CHECK(expected.column("loss")[1] != quantized.column("loss")[1]);
  for (size_t i = 0; i < plain.steps.size(); ++i)
    CHECK(expected.column("loss")[i] == Approx(plain.column("loss")[i]).epsilon(0.01));
  const Run second = runs.second_half(runs.first_half(all, true), all, true);
  CHECK(read_bytes(second.output / "model.safetensors") ==
        read_bytes(expected.output / "model.safetensors"));
}

TEST_CASE("the errors of what travels are measured every steps_per_print steps") {
  ShardRuns runs;
  json zero = {{"stage", 3}, {"zero_quantized_weights", true}, {"zero_quantized_gradients", true}};
  const std::vector<std::string> print{"--set", "steps_per_print=2"};
  const auto errors_of = [&](bool hosts) {
    std::vector<json> list;
    for (const json& step : runs.run(zero, 4, hosts, print).steps)
      list.push_back(step.value("codec_error", json()));
    return list;
  };
  for (const bool hosts : {false, true}) {
    const std::vector<json> errors = errors_of(hosts);
    REQUIRE(errors.size() == 4);
    CHECK(errors[0].is_null());
    CHECK(errors[2].is_null());
    for (const size_t step : {1, 3}) {
      CHECK(errors[step].size() == (hosts ? 3 : 2));
      CHECK(errors[step]["weights"].get<double>() == Approx(0.006).margin(0.005));
      CHECK(errors[step]["gradients"].get<double>() == Approx(0.085).margin(0.015));
      if (hosts) CHECK(errors[step]["sums"].get<double>() == Approx(0.085).margin(0.015));
    }
  }
}
