#include "runtime/engine/step/mesh_comm.h"

#include <algorithm>
#include <utility>

namespace dstrain {

MeshComm::MeshComm(Communicator& world, Communicator& host, Place place, PipelineSchedule schedule)
    : world_(world), host_(host), place_(place), schedule_(schedule) {
  channels_.fill(&world);
  make_groups();
  if (place.stages == 1) return;
  // A channel has a communicator of its own: none must wait for another. Each round makes as many as it can.
  std::vector<ChannelEnd> left = sending_ends(place.stages, schedule);
  while (!left.empty()) {
    std::vector<ChannelEnd> round, later;
    std::vector<char> busy(static_cast<size_t>(place.stages));
    for (const ChannelEnd& sender : left) {
      char& here = busy[static_cast<size_t>(sender.stage)];
      char& there = busy[static_cast<size_t>(other_end(sender, place.stages).stage)];
      const bool fits = here == 0 && there == 0;
      (fits ? round : later).push_back(sender);
      if (fits) here = there = 1;
    }
    connect(round);
    left = std::move(later);
  }
}

MeshComm::~MeshComm() {
  while (!parts_.empty()) parts_.pop_back();  // a part of a part before that
}

void MeshComm::make_groups() {
  if (place_.stages > 1) {
    std::vector<int> group;
    for (int r = 0; r < place_.ranks; ++r) group.push_back(world_rank(place_, place_.stage, r));
    parts_.push_back(world_.split(group));
    channels_.fill(parts_.back().get());
  }
  if (!place_.factored()) return;
  std::vector<int> shard, replicas;
  for (int r = 0; r < place_.ranks; ++r) {
    if (r / place_.shard_size() == place_.replica()) shard.push_back(r);
    if (r % place_.shard_size() == place_.shard_rank()) replicas.push_back(r);
  }
  for (const auto& [channel, ranks] :
       {std::pair{shard_group, &shard}, std::pair{replica_group, &replicas}}) {
    parts_.push_back(data().split(*ranks));
    channels_[channel] = parts_.back().get();
  }
}

void MeshComm::connect(std::span<const ChannelEnd> senders) {
  for (const ChannelEnd& sender : senders)
    for (const ChannelEnd& end : {sender, other_end(sender, place_.stages)}) {
      if (end.stage != place_.stage) continue;
      parts_.push_back(pair(end.stage, other_end(end, place_.stages).stage));
      channels_[end.channel] = parts_.back().get();
      return;
    }
  parts_.push_back(world_.split(std::vector{world_.rank()}));
}

std::unique_ptr<Communicator> MeshComm::pair(int stage, int other) {
  const auto [first, second] = std::minmax(stage, other);
  return world_.split(
      std::vector{world_rank(place_, first, place_.rank), world_rank(place_, second, place_.rank)});
}

}  // namespace dstrain
