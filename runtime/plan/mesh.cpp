#include "runtime/plan/mesh.h"

#include <algorithm>
#include <array>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

// What the two ends of a channel are called.
struct Ends {
  Channel here, there;
  int step = 0;  // from this stage to the other one
};

constexpr std::array<Ends, kChannels - from_previous> kEnds{{
    {from_previous, to_next, -1},
    {to_next, from_previous, 1},
    {from_next, to_previous, 1},
    {to_previous, from_next, -1},
    {tied, tied, 0},
    {up_from_next, up_to_previous, 1},
    {up_to_previous, up_from_next, -1},
    {up_from_previous, up_to_next, -1},
    {up_to_next, up_from_previous, 1},
}};

const Ends& ends_of(Channel channel) {
  return kEnds[static_cast<size_t>(channel - from_previous)];
}

// Returns how many consecutive ranks of each data-parallel group are on one host; 0 if hosts differ in that.
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

int channels_of_pipeline(PipelineSchedule schedule) {
  return schedule == PipelineSchedule::zb_v ? kChannels : tied + 1;
}

}  // namespace

int host_shard_ranks(std::span<const int> hosts, int stages) {
  const int size = ranks_of_each_host(hosts, stages);
  if (size == 0)
    fail_user(
        "HYBRID_SHARD divides parameters among the ranks of a host, and the {} data-parallel ranks "
        "do not have the "
        "same number on each host: give the number, zero_optimization.mics_shard_size",
        hosts.size() / static_cast<size_t>(stages));
  return size;
}

void settle_host_shards(Job& job, std::span<const int> hosts) {
  if (!job.shards.by_host) return;
  job.shards.by_host = false;
  if (job.hook.kind == HookKind::post_local_sgd) {
    job.shards.ranks = ranks_of_each_host(hosts, job.pipeline.stages);
    if (job.shards.ranks == 0)
      fail_user(
          "dstrain.comm_hook: post_localSGD adds gradients among the ranks of a host, and the {} "
          "ranks do not have the same number on each host: set post_local_gradient_allreduce to "
          "false, or use hosts with equal numbers of ranks",
          job.data_ranks());
    return;
  }
  job.shards.ranks = job.shards.parameters ? host_shard_ranks(hosts, job.pipeline.stages)
                                           : ranks_of_each_host(hosts, job.pipeline.stages);
}

int ranks_of(const Place& place, int32_t channel) {
  if (!is_group(channel)) return 2;
  return channel == shard_group     ? place.shard_size()
         : channel == replica_group ? place.replicas()
                                    : place.ranks;
}

int first_of_group(const Place& place, int32_t channel) {
  check(is_group(channel), "channel {} has two ends and no group", channel);
  return channel == shard_group     ? place.replica() * place.shard_size()
         : channel == replica_group ? place.shard_rank()
                                    : 0;
}

int channels_of(const Place& place, PipelineSchedule schedule) {
  if (place.stages == 1) return place.factored() ? replica_group + 1 : data_group + 1;
  return channels_of_pipeline(schedule);
}

ChannelEnd other_end(ChannelEnd end, int stages) {
  check(!is_group(end.channel) && end.channel < kChannels, "channel {} has no other end",
        static_cast<int>(end.channel));
  if (end.channel == tied) return {end.stage == 0 ? stages - 1 : 0, tied};
  const Ends& ends = ends_of(end.channel);
  return {(end.stage + ends.step + stages) % stages, ends.there};
}

std::vector<ChannelEnd> sending_ends(int stages, PipelineSchedule schedule) {
  const bool around = schedule == PipelineSchedule::interleaved;
  const int channels = channels_of_pipeline(schedule);
  std::vector<ChannelEnd> list{{0, tied}};
  for (const Channel channel : {to_next, to_previous, up_to_previous, up_to_next}) {
    if (channel >= channels) continue;
    const int step = ends_of(channel).step;
    for (int stage = 0; stage < stages; ++stage)
      if (around || (stage + step >= 0 && stage + step < stages)) list.push_back({stage, channel});
  }
  return list;
}

}  // namespace dstrain
