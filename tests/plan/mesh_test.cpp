#include "runtime/plan/mesh.h"

#include <catch2/catch.hpp>
#include <set>
#include <vector>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

constexpr AxisSizes kSizes{2, 3, 2, 2, 2, 2};
constexpr int kRanks = 96;

TEST_CASE(
    "numbers in the world count the fastest axis first, and every rank has a place of its own") {
  int rank = 0;
  for (int stage = 0; stage < 2; ++stage)
    for (int replica = 0; replica < 3; ++replica)
      for (int shard = 0; shard < 2; ++shard)
        for (int expert = 0; expert < 2; ++expert)
          for (int sequence = 0; sequence < 2; ++sequence)
            for (int tensor = 0; tensor < 2; ++tensor) {
              const Place place(kSizes, rank);
              CHECK(place.stage() == stage);
              CHECK(place.replica() == replica);
              CHECK(place.rank_in(Axis::shard) == shard);
              CHECK(place.rank_in(Axis::expert) == expert);
              CHECK(place.shard_rank() == 4 * shard + 2 * expert + sequence);
              CHECK(place.rank_in(Axis::sequence) == sequence);
              CHECK(place.rank_in(Axis::tensor) == tensor);
              CHECK(world_rank(place) == rank++);
            }
  CHECK(rank == kRanks);
}

TEST_CASE("ranks with the same parameters are those of all axes but stages and parts of layers") {
  const Place place(kSizes, 95);
  CHECK(place.ranks() == 24);
  CHECK(place.rank() == 23);
  // Ranks that share samples by their tokens add gradients, and have no samples of their own.
  CHECK(place.ranks_in(kSampleAxes) == 12);
  CHECK(place.rank_in(kSampleAxes) == 11);
  CHECK(place.moved(Axis::sequence, 0).rank_in(kSampleAxes) == 11);
  CHECK(place.moved(Axis::sequence, 0).rank() == 22);
  // Those that divide experts have other ones.
  CHECK(place.ranks_in(kExpertStateAxes) == 12);
  CHECK(place.moved(Axis::expert, 0).rank_in(kExpertStateAxes) == place.rank_in(kExpertStateAxes));
}

TEST_CASE("a job says how many ranks there are along each axis") {
  Job job;
  job.ranks = 48;
  job.pipeline.stages = 2;
  job.sequence_ranks = 2;
  job.tensor_ranks = 3;
  Place place = place_of(job, 47);
  CHECK(place.stages() == 2);
  CHECK(place.ranks_in(kSampleAxes) == job.data_ranks());
  CHECK(place.ranks() == job.state_ranks());
  CHECK(place.ranks_in(Axis::sequence) == 2);
  CHECK(place.ranks_in(Axis::tensor) == 3);
  CHECK(place.replicas() == 1);
  CHECK(world_rank(place) == 47);
  CHECK(place_of(job, 1).rank_in(Axis::tensor) == 1);
  CHECK(place_of(job, 3).rank_in(Axis::sequence) == 1);
  job.expert_ranks = 2;
  place = place_of(job, 6);
  CHECK(place.ranks_in(Axis::expert) == 2);
  CHECK(place.rank_in(Axis::expert) == 1);
  CHECK(place.ranks_in(kSampleAxes) == job.data_ranks());
  job.expert_ranks = 1;
  job.shards.ranks = 2;
  place = place_of(job, 0);
  CHECK(place.shard_size() == 4);  // with its sequence ranks
  CHECK(place.replicas() == 2);
}

TEST_CASE("the groups along some axes divide the ranks, and differ in these coordinates alone") {
  for (const Axes axes : {Axes(Axis::pipe), Axes(Axis::shard), Axis::replica | Axis::tensor,
                          kSampleAxes, kStateAxes, kAllAxes, Axes()}) {
    std::set<std::set<int>> groups;
    for (int rank = 0; rank < kRanks; ++rank) {
      const Place place(kSizes, rank);
      std::set<int> group;
      for (int r = 0; r < place.ranks_in(axes); ++r) {
        const Place member = place.moved(axes, r);
        CHECK(member.rank_in(axes) == r);
        for (const Axis axis :
             {Axis::pipe, Axis::replica, Axis::shard, Axis::expert, Axis::sequence, Axis::tensor})
          if (!axes.has(axis)) CHECK(member.rank_in(axis) == place.rank_in(axis));
        group.insert(world_rank(member));
      }
      CHECK(group.contains(rank));
      groups.insert(group);
    }
    size_t ranks = 0;
    for (const std::set<int>& group : groups) ranks += group.size();
    CHECK(ranks == kRanks);
  }
}

TEST_CASE("a group has a channel if it is one of the mesh's, whatever its axes of one rank") {
  const Place data({1, 1, 4, 1, 1, 1}), replicas({1, 4, 1, 1, 1, 1}), factored({1, 2, 2, 1, 1, 1});
  for (const Place& place : {data, replicas}) {
    CHECK(channels_of(place, {}) == std::vector<Channel>{{.group = kStateAxes}});
    CHECK(channel_of(place, kStateAxes) == kStateChannel);
  }
  CHECK(channel_of(data, Axis::shard) == kStateChannel);
  CHECK_THROWS_AS(channel_of(data, Axis::replica), InternalError);
  CHECK(channel_of(replicas, Axis::replica) == kStateChannel);
  CHECK_THROWS_AS(channel_of(replicas, Axis::shard), InternalError);
  const std::vector<Channel> channels = channels_of(factored, {});
  CHECK(channels.size() == 3);
  for (const Axes group : {kStateAxes, kShardAxes, Axes(Axis::replica)})
    CHECK(channels[static_cast<size_t>(channel_of(factored, group))].group == group);
}

TEST_CASE("an expert group has a channel, and so have the ranks with the same experts") {
  const Place both({1, 1, 2, 2, 1, 1}, 3), alone({1, 1, 1, 4, 1, 1}, 1);
  for (const Place& place : {both, alone}) {
    const std::vector<Channel> channels = channels_of(place, {});
    CHECK(channels[0].group == kStateAxes);
    for (const Axes group : {kStateAxes, Axes(Axis::expert)})
      CHECK(channels[static_cast<size_t>(channel_of(place, group))].group == group);
  }
  CHECK(channels_of(both, {}).size() == 3);
  CHECK(ranks_of(both, channels_of(both, {}).back()) == 2);
  CHECK(world_rank(both.moved(kExpertStateAxes, 0)) == 1);
  CHECK(channels_of(alone, {}).size() == 2);
  CHECK_THROWS_AS(channel_of(alone, kExpertStateAxes), InternalError);
}

TEST_CASE("a shard group has the sequence ranks, and for what tensor ranks share these too") {
  const Place place({1, 2, 2, 1, 2, 2}, 13);  // replica 1, shard 1, sequence 0, tensor 1
  CHECK(place.shard_size() == 4);
  CHECK(place.shard_rank() == 2);
  CHECK(place.ranks_in(kShardAxes | Axis::tensor) == 8);
  CHECK(place.rank_in(kShardAxes | Axis::tensor) == 5);
  CHECK(place.factored());
  const std::vector<Channel> channels = channels_of(place, {});
  for (const Axes group : {kStateAxes, kShardAxes, Axes(Axis::replica), kShardAxes | Axis::tensor,
                           kStateAxes | Axis::tensor})
    CHECK(channels[static_cast<size_t>(channel_of(place, group))].group == group);
  const Place lone({1, 2, 1, 1, 2, 1});  // shard groups of one data-parallel rank
  CHECK(lone.factored());
  CHECK_FALSE(Place({1, 2, 1, 1, 1, 2}).factored());
}

TEST_CASE("a pipeline has its links behind its groups, and what one end sends the other receives") {
  for (const PipelineSchedule schedule : {PipelineSchedule::one_f_one_b, PipelineSchedule::zb_v})
    for (const int shard : {1, 2}) {
      const Place place({3, 2, shard, 1, 1, 1});
      const std::vector<Channel> channels = channels_of(place, schedule);
      for (const LinkEnd& sender : sending_ends(3, schedule)) {
        const LinkEnd receiver = other_end(sender, 3);
        CHECK(other_end(receiver, 3) == sender);
        for (const LinkEnd& end : {sender, receiver}) {
          const auto at = static_cast<size_t>(channel_of(place, end.link));
          REQUIRE(at < channels.size());
          CHECK(channels[at] == Channel{.link = end.link});
          CHECK(ranks_of(place, channels[at]) == 2);
        }
      }
    }
}

}  // namespace
}  // namespace dstrain
