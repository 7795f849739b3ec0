// Whole runs in which parameters travel quantized: the same bits with shards and without, in one go and resumed.
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
  const Run hybrid = runs.run(quantized({}), 2 * kHalf, true, {}, "HYBRID_SHARD");
  for (const Run* run : {&mics, &hybrid}) {
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
