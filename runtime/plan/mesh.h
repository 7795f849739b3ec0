// Mesh: the ranks of a run as points of a mesh with the axes of axes.h. A group is the ranks that differ in the
// coordinates of some axes alone. As in DeepSpeed the ranks of a stage follow one another, and so do those of a shard
// group.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/config/job.h"
#include "runtime/ir/units/axes.h"

namespace dstrain {

// Ranks of a replica that have the same parameters: a shard group.
inline constexpr Axes kShardAxes = Axis::shard | Axis::expert | Axis::sequence;
// Returns the axes of the shard groups of what ranks divide along `axes`: all but `replica`.
constexpr Axes within_replica(Axes axes) {
  Axes within;
  for (const Axis axis : {Axis::pipe, Axis::shard, Axis::expert, Axis::sequence, Axis::tensor})
    if (axes.has(axis)) within = within | axis;
  return within;
}

using AxisSizes = std::array<int, kAxes>;  // by axis

// The point of the mesh at which the rank is that a program is made for.
class Place {
 public:
  // The only rank of a run.
  Place() = default;
  // Rank `rank` of the world. `replicas_hold`: whether each shard group has all parameters; else all ranks together have
  // them.
  explicit Place(const AxisSizes& sizes, int rank = 0, bool replicas_hold = true);

  // Returns the number of the rank in its group along `axes`, and the size of the group.
  int rank_in(Axes axes) const;
  int ranks_in(Axes axes) const;
  // Returns the place of rank `rank` of its group along `axes`.
  Place moved(Axes axes, int rank) const;

  int stage() const { return rank_in(Axis::pipe); }
  int stages() const { return ranks_in(Axis::pipe); }
  // Return the rank's number among those that have the same parameters, and how many these are.
  int rank() const { return rank_in(kStateAxes); }
  int ranks() const { return ranks_in(kStateAxes); }
  int shard_rank() const { return rank_in(kShardAxes); }
  int shard_size() const { return ranks_in(kShardAxes); }
  int replica() const { return rank_in(Axis::replica); }
  int replicas() const { return ranks_in(Axis::replica); }
  bool replicas_hold() const { return replicas_hold_; }
  // Returns whether shard groups and replica groups are neither single ranks nor the whole group.
  bool factored() const { return shard_size() > 1 && replicas() > 1; }

  bool operator==(const Place&) const = default;

 private:
  AxisSizes sizes_{1, 1, 1, 1, 1, 1};
  std::array<int, kAxes> coordinates_{};
  bool replicas_hold_ = true;
};

// Returns the place of rank `rank` of the job's world.
Place place_of(const Job& job, int rank);

// Returns the number in the world of a place, or of rank `rank` of the ranks of `stage` that have its parameters.
inline int world_rank(const Place& place) {
  return place.rank_in(kAllAxes);
}
inline int world_rank(const Place& place, int stage, int rank) {
  return world_rank(place.moved(Axis::pipe, stage).moved(kStateAxes, rank));
}

// Returns how many consecutive ranks of each data-parallel group are on one host. `hosts`: of every rank of the world.
// `layer_ranks`: how many ranks follow one another that have the same samples, which no host divides. Throws UserError if
// the hosts do not divide the groups into equal shard groups.
int host_shard_ranks(std::span<const int> hosts, int stages, int layer_ranks = 1);

// Settles a job whose shard groups are to be those of the hosts, if it is such a job. Where groups only add gradients
// and the hosts do not divide the ranks evenly, all ranks are one group.
void settle_host_shards(Job& job, std::span<const int> hosts);

// What a stage of a pipeline exchanges with others, each on a channel of its own. The next stage of the last one is the
// first.
enum class Link : uint8_t {
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

// A communicator that carries collectives of a group, or messages of a link, independently of all others.
struct Channel {
  Axes group{};  // along which its ranks differ; of a link: none
  std::optional<Link> link{};

  bool is_group() const { return !link; }
  bool operator==(const Channel&) const = default;
};

// Returns the channels of the plans of a mesh, in the order of their numbers in instructions: the groups, of which
// kStateAxes is the first, and the links of its pipeline.
std::vector<Channel> channels_of(const Place& place, PipelineSchedule schedule);

// The number of the channel of kStateAxes.
inline constexpr int32_t kStateChannel = 0;
// Returns the number of the channel of a group. Axes of one rank make no difference. Throws InternalError if the mesh
// has no such channel, as for a group of one rank.
int32_t channel_of(const Place& place, Axes group);
// Returns the number of the channel of a link.
int32_t channel_of(const Place& place, Link link);

// Returns how many ranks share a channel.
int ranks_of(const Place& place, const Channel& channel);

// One end of a link between two stages.
struct LinkEnd {
  int stage = 0;
  Link link = Link::to_next;
  bool operator==(const LinkEnd&) const = default;
};

// Returns the end that receives what `stage` sends on a link, or sends what it receives.
LinkEnd other_end(LinkEnd end, int stages);

// Returns the sending ends of all links that the stages of a pipeline use.
std::vector<LinkEnd> sending_ends(int stages, PipelineSchedule schedule);

// Returns how many groups of ranks update weights of their own after the start of post_localSGD; 1 where all ranks
// always have the same weights. The job must have its shard groups.
int local_groups(const Job& job);

}  // namespace dstrain
