#include "runtime/plan/mesh.h"

#include <algorithm>
#include <array>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

constexpr std::array<Axis, kAxes> kAxesInOrder{Axis::pipe,   Axis::replica,  Axis::shard,
                                               Axis::expert, Axis::sequence, Axis::tensor};

constexpr size_t index_of(Axis axis) {
  return static_cast<size_t>(axis);
}

// What the two ends of a link are called.
struct Ends {
  Link here, there;
  int step = 0;  // from this stage to the other one
};

constexpr std::array<Ends, 9> kEnds{{
    {Link::from_previous, Link::to_next, -1},
    {Link::to_next, Link::from_previous, 1},
    {Link::from_next, Link::to_previous, 1},
    {Link::to_previous, Link::from_next, -1},
    {Link::tied, Link::tied, 0},
    {Link::up_from_next, Link::up_to_previous, 1},
    {Link::up_to_previous, Link::up_from_next, -1},
    {Link::up_from_previous, Link::up_to_next, -1},
    {Link::up_to_next, Link::up_from_previous, 1},
}};

const Ends& ends_of(Link link) {
  return kEnds[static_cast<size_t>(link)];
}

// Returns the links of a pipeline.
std::span<const Ends> links_of(PipelineSchedule schedule) {
  return std::span(kEnds).first(
      schedule == PipelineSchedule::zb_v ? kEnds.size() : static_cast<size_t>(Link::tied) + 1);
}

// Returns the groups that have a channel.
std::vector<Axes> groups_of(const Place& place) {
  std::vector<Axes> groups{kStateAxes};
  if (place.factored()) groups.insert(groups.end(), {kShardAxes, Axis::replica});
  if (place.ranks_in(Axis::expert) > 1) {
    groups.emplace_back(Axis::expert);
    if (place.ranks_in(kExpertStateAxes) > 1) groups.push_back(kExpertStateAxes);
  }
  if (place.ranks_in(Axis::sequence) > 1) groups.emplace_back(Axis::sequence);
  if (place.ranks_in(Axis::tensor) > 1)
    groups.insert(groups.end(), {Axis::tensor, kStateAxes | Axis::tensor});
  if (place.ranks_in(Axis::tensor) > 1 && place.factored())
    groups.push_back(kShardAxes | Axis::tensor);
  return groups;
}

// Returns the axes of a group along which there is more than one rank.
Axes divided(const Place& place, Axes group) {
  Axes axes;
  for (const Axis axis : kAxesInOrder)
    if (group.has(axis) && place.ranks_in(axis) > 1) axes = axes | axis;
  return axes;
}

// Returns how many consecutive ranks of each stage are on one host; 0 if hosts differ in that.
int ranks_of_each_host(std::span<const int> hosts, int stages) {
  const auto ranks = hosts.size() / static_cast<size_t>(stages);
  const auto first = hosts.first(ranks);
  const auto size = static_cast<size_t>(
      std::ranges::find_if(first, [&](int h) { return h != first[0]; }) - first.begin());
  if (ranks % size != 0) return 0;
  for (size_t r = 0; r < hosts.size(); ++r) {
    const size_t number = r % ranks;
    const bool begins = number % size == 0;
    if (number > 0 && begins == (hosts[r] == hosts[r - 1])) return 0;
  }
  return static_cast<int>(size);
}

// Returns how many data-parallel ranks of a stage each host has; 0 if the hosts have different numbers, or divide the
// `layer_ranks` ranks that share layers or samples.
int data_ranks_of_each_host(std::span<const int> hosts, int stages, int layer_ranks) {
  const int ranks = ranks_of_each_host(hosts, stages);
  return ranks % layer_ranks == 0 ? ranks / layer_ranks : 0;
}

}  // namespace

Place::Place(const AxisSizes& sizes, int rank, bool replicas_hold)
    : sizes_(sizes), replicas_hold_(replicas_hold) {
  *this = moved(kAllAxes, rank);
}

int Place::rank_in(Axes axes) const {
  int rank = 0;
  for (const Axis axis : kAxesInOrder)
    if (axes.has(axis)) rank = rank * sizes_[index_of(axis)] + coordinates_[index_of(axis)];
  return rank;
}

int Place::ranks_in(Axes axes) const {
  int ranks = 1;
  for (const Axis axis : kAxesInOrder)
    if (axes.has(axis)) ranks *= sizes_[index_of(axis)];
  return ranks;
}

Place Place::moved(Axes axes, int rank) const {
  Place place = *this;
  for (size_t axis = kAxes; axis-- > 0;) {  // the fastest first
    if (!axes.has(kAxesInOrder[axis])) continue;
    place.coordinates_[axis] = rank % sizes_[axis];
    rank /= sizes_[axis];
  }
  return place;
}

Place place_of(const Job& job, int rank) {
  const int ranks = job.data_ranks();
  const int shard = job.shards.ranks == 0 ? ranks : job.shards.ranks;
  return Place({job.pipeline.stages, ranks / shard, shard / job.expert_ranks, job.expert_ranks,
                job.sequence_ranks, job.tensor_ranks},
               rank, job.shards.parameters);
}

int host_shard_ranks(std::span<const int> hosts, int stages, int layer_ranks) {
  const auto all = static_cast<int>(hosts.size()) / stages;
  if (all == layer_ranks) return 1;
  const int ranks = ranks_of_each_host(hosts, stages);
  if (ranks % layer_ranks != 0)
    fail_user(
        "HYBRID_SHARD divides parameters among the data-parallel ranks of a host, and hosts of {} "
        "ranks divide the {} ranks that share layers or samples: let tensor_parallel.autotp_size "
        "times sequence_parallel_size divide {}, or give the number, "
        "zero_optimization.mics_shard_size",
        ranks, layer_ranks, ranks);
  if (ranks == 0)
    fail_user(
        "HYBRID_SHARD divides parameters among the ranks of a host, and the {} data-parallel ranks "
        "do not have the "
        "same number on each host: give the number, zero_optimization.mics_shard_size",
        all / layer_ranks);
  return ranks / layer_ranks;
}

void settle_host_shards(Job& job, std::span<const int> hosts) {
  if (!job.shards.by_host) return;
  job.shards.by_host = false;
  const int stages = job.pipeline.stages, layer_ranks = job.sequence_ranks * job.tensor_ranks;
  if (job.hook.kind == HookKind::post_local_sgd) {
    job.shards.ranks = data_ranks_of_each_host(hosts, stages, layer_ranks);
    if (job.shards.ranks == 0)
      fail_user(
          "dstrain.comm_hook: post_localSGD adds gradients among the ranks of a host, and the {} "
          "ranks do not have the same number on each host: set post_local_gradient_allreduce to "
          "false, or use hosts with equal numbers of ranks",
          job.data_ranks());
    return;
  }
  job.shards.ranks = job.shards.parameters ? host_shard_ranks(hosts, stages, layer_ranks)
                                           : data_ranks_of_each_host(hosts, stages, layer_ranks);
}

std::vector<Channel> channels_of(const Place& place, PipelineSchedule schedule) {
  std::vector<Channel> channels;
  for (const Axes group : groups_of(place)) channels.push_back({.group = group});
  if (place.stages() > 1)
    for (const Ends& ends : links_of(schedule)) channels.push_back({.link = ends.here});
  return channels;
}

int32_t channel_of(const Place& place, Axes group) {
  const std::vector<Axes> groups = groups_of(place);
  // An expert group has a channel of its own also where its ranks are all that have the same parameters.
  auto found = std::ranges::find(groups, group);
  if (found == groups.end())
    found = std::ranges::find_if(
        groups, [&](Axes other) { return divided(place, other) == divided(place, group); });
  check(found != groups.end(), "a group of {} ranks has no channel", place.ranks_in(group));
  return static_cast<int32_t>(found - groups.begin());
}

int32_t channel_of(const Place& place, Link link) {
  return static_cast<int32_t>(groups_of(place).size()) + static_cast<int32_t>(link);
}

int ranks_of(const Place& place, const Channel& channel) {
  return channel.is_group() ? place.ranks_in(channel.group) : 2;
}

LinkEnd other_end(LinkEnd end, int stages) {
  if (end.link == Link::tied) return {end.stage == 0 ? stages - 1 : 0, Link::tied};
  const Ends& ends = ends_of(end.link);
  return {(end.stage + ends.step + stages) % stages, ends.there};
}

std::vector<LinkEnd> sending_ends(int stages, PipelineSchedule schedule) {
  const bool around = schedule == PipelineSchedule::interleaved;
  std::vector<LinkEnd> list{{0, Link::tied}};
  for (const Link link :
       {Link::to_next, Link::to_previous, Link::up_to_previous, Link::up_to_next}) {
    if (static_cast<size_t>(link) >= links_of(schedule).size()) continue;
    const int step = ends_of(link).step;
    for (int stage = 0; stage < stages; ++stage)
      if (around || (stage + step >= 0 && stage + step < stages)) list.push_back({stage, link});
  }
  return list;
}

int local_groups(const Job& job) {
  if (job.hook.kind != HookKind::post_local_sgd || job.shards.ranks == 0) return 1;
  return job.data_ranks() / job.shards.ranks;
}

}  // namespace dstrain
