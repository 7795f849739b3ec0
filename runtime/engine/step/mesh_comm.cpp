#include "runtime/engine/step/mesh_comm.h"

#include <algorithm>

namespace dstrain {

MeshComm::MeshComm(Communicator& world, Communicator& host, Place place, PipelineSchedule schedule)
    : world_(world), host_(host), place_(place), schedule_(schedule) {
  channels_.fill(&world);
  if (place.stages == 1) return;
  std::vector<int> group;
  for (int r = 0; r < place.ranks; ++r) group.push_back(world_rank(place, place.stage, r));
  parts_.push_back(world.split(group));
  channels_.fill(parts_.back().get());
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
