#include "runtime/plan/cost/nccl_memory.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/plan/plans.h"

using namespace dstrain;

namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr NcclConnections kRings{.rings = true}, kPeers{.peers = true}, kMessages{.messages = true};
constexpr NcclConnections kBoth{.rings = true, .peers = true};

Job gpu_job(int ranks) {
  Job job = sharded_job(0, ranks);
  job.device = DeviceChoice::cuda;
  return job;
}

const NcclGroup& group_named(const std::vector<NcclGroup>& groups, const std::string& name) {
  const auto it = std::ranges::find(groups, name, &NcclGroup::name);
  REQUIRE(it != groups.end());
  return *it;
}

}  // namespace

TEST_CASE("a communicator takes 12 MiB for each peer and channel") {
  CHECK(nccl_bytes(1, kBoth) == 0);
  CHECK(nccl_bytes(2, {}) == 0);
  // 8 channels between two ranks, who are each other's only neighbour.
  CHECK(nccl_bytes(2, kRings) == 8 * 12 * kMiB);
  CHECK(nccl_bytes(2, kMessages) == 8 * 12 * kMiB);
  CHECK(nccl_bytes(2, kPeers) == 8 * 12 * kMiB);
  CHECK(nccl_bytes(2, kBoth) == 2 * 8 * 12 * kMiB);
  // 16 channels, two neighbours, and the switch's buffers of 2 MiB for each rank and channel.
  CHECK(nccl_bytes(4, kRings) == (2 * 16 * 12 + 4 * 16 * 2) * kMiB);
  CHECK(nccl_bytes(8, kRings) == (2 * 16 * 12 + 8 * 16 * 2) * kMiB);
  // All other ranks: 1.4 GB on a host of eight.
  CHECK(nccl_bytes(4, kPeers) == 3 * 16 * 12 * kMiB);
  CHECK(nccl_bytes(8, kPeers) == 1344 * kMiB);
  CHECK(nccl_bytes(8, kBoth) == nccl_bytes(8, kRings) + nccl_bytes(8, kPeers));
}

TEST_CASE("sums in rank order connect all ranks, NCCL's own sums only neighbours") {
  for (const int ranks : {2, 4, 8}) {
    Job job = gpu_job(ranks);
    job.rank_order_sums = false;
    const std::vector<NcclGroup> ring = nccl_groups(job, place_of(job, 0));
    REQUIRE(ring.size() == 1);
    CHECK(ring[0].ranks == ranks);
    CHECK(ring[0].connections == NcclConnections{.rings = true, .messages = ranks == 2});
    job.rank_order_sums = true;
    const std::vector<NcclGroup> all = nccl_groups(job, place_of(job, 0));
    REQUIRE(all.size() == 1);
    CHECK(all[0].connections == NcclConnections{true, true, ranks == 2});
    CHECK(all[0].bytes == nccl_bytes(ranks, kBoth));
  }
  const Job alone = gpu_job(1);
  CHECK(nccl_groups(alone, place_of(alone, 0)).empty());
  CHECK(nccl_memory_text(alone, place_of(alone, 0)).empty());
}

TEST_CASE("each group of a mesh, and each link of its pipeline, has memory of its own") {
  Job job = gpu_job(8);
  job.pipeline.stages = 2;
  job.tensor_ranks = 2;
  const Place place = place_of(job, 0);
  const std::vector<NcclGroup> groups = nccl_groups(job, place);
  CHECK(group_named(groups, "ranks with the same parameters").ranks == 2);
  CHECK(group_named(groups, "tensor group").bytes == nccl_bytes(2, kBoth));
  CHECK(group_named(groups, "ranks with parameters in common").bytes == nccl_bytes(4, kBoth));
  CHECK(group_named(groups, "a link of the pipeline").bytes == nccl_bytes(2, kMessages));
  // Messages between two ranks are connected when their communicator is made.
  int64_t all = 0, made = 0;
  for (const NcclGroup& group : groups) {
    all += group.bytes;
    if (group.ranks == 2) made += nccl_bytes(2, kMessages);
  }
  CHECK(nccl_bytes_to_come(job, place) == all - made);
  CHECK_THAT(nccl_memory_text(job, place),
             Catch::StartsWith("on GPUs NCCL's buffers take up to ") &&
                 Catch::Contains("tensor group (2) 201 MB"));
}

TEST_CASE("groups that gather alone connect neighbours, unless gradients pass them packed") {
  Job job = gpu_job(8);
  job.zero_stage = 3;
  job.shards = {4, false, true};
  const auto of_shards = [&job] {
    return group_named(nccl_groups(job, place_of(job, 0)), "shard group").connections;
  };
  CHECK(of_shards() == kRings);
  job.quantize.gradients = true;
  CHECK(of_shards() == kBoth);
}
