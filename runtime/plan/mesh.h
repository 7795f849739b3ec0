// Mesh: the coordinates of ranks. A run has `stages` pipeline stages, each with a data-parallel group of equal
// size. The stage is the slower coordinate, as in DeepSpeed: ranks 0, 1, ... of a group follow one another. A
// data-parallel group may be factored into replicas of equal size: a shard group is the ranks of one replica, which
// follow one another too; a replica group is the ranks with one number in their shard groups.
#pragma once

#include <span>
#include <vector>

#include "runtime/config/job.h"

namespace dstrain {

// The coordinates of the rank that a program is made for.
struct Place {
  int rank = 0;   // in its data-parallel group
  int ranks = 1;  // of the group
  int stage = 0;
  int stages = 1;
  int shard_ranks = 0;  // of a shard group; 0: all of the data-parallel group
  bool replicas_hold =
      true;  // each shard group has all parameters; else all ranks together have them

  int shard_size() const { return shard_ranks == 0 ? ranks : shard_ranks; }
  int shard_rank() const { return rank % shard_size(); }
  int replicas() const { return ranks / shard_size(); }
  int replica() const { return rank / shard_size(); }
  // Returns whether shard groups and replica groups are neither single ranks nor the whole group.
  bool factored() const { return shard_size() > 1 && replicas() > 1; }
};

// Returns the coordinates of rank `rank` of the job's world.
inline Place place_of(const Job& job, int rank) {
  const int ranks = job.data_ranks();
  return {rank % ranks,         ranks, rank / ranks, job.pipeline.stages, job.shards.ranks,
          job.shards.parameters};
}

// Returns the coordinates of a rank in its shard group, as if that were the data-parallel group.
inline Place shard_group_of(const Place& place) {
  return {place.shard_rank(), place.shard_size(), place.stage, place.stages};
}

// Returns how many consecutive ranks of each data-parallel group are on one host. `hosts`: of every rank of the world.
// Throws UserError if the hosts do not divide the groups into equal shard groups.
int host_shard_ranks(std::span<const int> hosts, int stages);

// Settles a job whose shard groups are to be those of the hosts, if it is such a job. Where groups only add gradients
// and the hosts do not divide the ranks evenly, all ranks are one group.
void settle_host_shards(Job& job, std::span<const int> hosts);

// Returns the rank in the world of rank `rank` of the data-parallel group of `stage`.
inline int world_rank(Place place, int stage, int rank) {
  return stage * place.ranks + rank;
}

// The channels of a plan, by index: communicators that carry its collectives and messages independently of one
// another. A plan has the first one, and the next two if its data-parallel group is factored; a pipeline has more. The
// next stage of the last one is the first.
enum Channel : int32_t {
  data_group,     // the ranks of the stage
  shard_group,    // those of this replica
  replica_group,  // those with this rank's number in their shard groups
  from_previous,  // activations
  to_next,
  from_next,  // their gradients
  to_previous,
  tied,  // between the first stage and the last: parameters that both use, and their gradients
  // Where the parts of the model go down the stages and up again (zb_v): those of the parts on the way up.
  up_from_next,  // activations
  up_to_previous,
  up_from_previous,  // their gradients
  up_to_next,
};
inline constexpr int kChannels = 12;

// Returns whether a channel carries collectives; the others carry messages.
constexpr bool is_group(int32_t channel) {
  return channel < from_previous;
}
// Returns how many ranks share a channel.
int ranks_of(const Place& place, int32_t channel);

// Returns which rank of the data-parallel group is the first one of the group that shares a channel of collectives with
// this rank.
int first_of_group(const Place& place, int32_t channel);

// Returns how many channels the plans of a mesh have.
int channels_of(const Place& place, PipelineSchedule schedule);

// One end of a channel between two stages.
struct ChannelEnd {
  int stage = 0;
  Channel channel = data_group;
  bool operator==(const ChannelEnd&) const = default;
};

// Returns the end that receives what `stage` sends on `channel`, or sends what it receives.
ChannelEnd other_end(ChannelEnd end, int stages);

// Returns the sending ends of all channels that the stages of a pipeline use.
std::vector<ChannelEnd> sending_ends(int stages, PipelineSchedule schedule);

}  // namespace dstrain
