// Mesh: the coordinates of ranks. A run has `stages` pipeline stages, each with a data-parallel group of equal
// size. The stage is the slower coordinate, as in DeepSpeed: ranks 0, 1, ... of a group follow one another.
#pragma once

#include <vector>

#include "runtime/config/job.h"

namespace dstrain {

// The coordinates of the rank that a program is made for.
struct Place {
  int rank = 0;   // in its data-parallel group
  int ranks = 1;  // of the group
  int stage = 0;
  int stages = 1;
};

// Returns the coordinates of rank `rank` of the job's world.
inline Place place_of(const Job& job, int rank) {
  const int ranks = job.data_ranks();
  return {rank % ranks, ranks, rank / ranks, job.pipeline.stages};
}

// Returns the rank in the world of rank `rank` of the data-parallel group of `stage`.
inline int world_rank(Place place, int stage, int rank) {
  return stage * place.ranks + rank;
}

// The channels of a plan, by index: communicators that carry its collectives and messages independently of one
// another. A plan of one stage has the first one only. The next stage of the last one is the first.
enum Channel : int32_t {
  data_group,     // the ranks of the stage
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
inline constexpr int kChannels = 10;

// Returns how many channels a plan has.
int channels_of(int stages, PipelineSchedule schedule);

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
