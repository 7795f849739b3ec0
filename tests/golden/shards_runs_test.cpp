// HYBRID_SHARD, MiCS and hpZ divide parameters among groups of ranks. A whole run with them has the bits of one without
// them, and its checkpoints are those of any other run.
#include "tests/golden/shard_runs.h"

using namespace dstrain::golden;
using nlohmann::json;

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
