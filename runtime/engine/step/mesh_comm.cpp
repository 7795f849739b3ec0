#include "runtime/engine/step/mesh_comm.h"

#include <algorithm>
#include <utility>

namespace dstrain {

MeshComm::MeshComm(Communicator& world, Communicator& host, const Place& place,
                   PipelineSchedule schedule)
    : world_(world), host_(host), place_(place) {
  for (const Channel& channel : channels_of(place, schedule))
    channels_.push_back(channel.is_group() ? &make_group(channel.group) : channels_[kStateChannel]);
  if (place.stages() == 1) return;
  // A link has a communicator of its own: none must wait for another. Each round makes as many as it can.
  std::vector<LinkEnd> left = sending_ends(place.stages(), schedule);
  while (!left.empty()) {
    std::vector<LinkEnd> round, later;
    std::vector<char> busy(static_cast<size_t>(place.stages()));
    for (const LinkEnd& sender : left) {
      char& here = busy[static_cast<size_t>(sender.stage)];
      char& there = busy[static_cast<size_t>(other_end(sender, place.stages()).stage)];
      const bool fits = here == 0 && there == 0;
      (fits ? round : later).push_back(sender);
      if (fits) here = there = 1;
    }
    connect(round);
    left = std::move(later);
  }
}

Communicator& MeshComm::make_group(Axes axes) {
  const bool is_taken = std::ranges::find(channels_, &world_) != channels_.end();
  if (place_.ranks_in(axes) == world_.size() && !is_taken) return world_;
  std::vector<int> ranks;
  for (int r = 0; r < place_.ranks_in(axes); ++r)
    ranks.push_back(world_rank(place_.moved(axes, r)));
  parts_.push_back(world_.split(ranks));
  return *parts_.back();
}

void MeshComm::connect(std::span<const LinkEnd> senders) {
  for (const LinkEnd& sender : senders)
    for (const LinkEnd& end : {sender, other_end(sender, place_.stages())}) {
      if (end.stage != place_.stage()) continue;
      parts_.push_back(pair(end.stage, other_end(end, place_.stages()).stage));
      channels_[static_cast<size_t>(channel_of(place_, end.link))] = parts_.back().get();
      return;
    }
  parts_.push_back(world_.split(std::vector{world_.rank()}));
}

std::unique_ptr<Communicator> MeshComm::pair(int stage, int other) {
  const auto [first, second] = std::minmax(stage, other);
  return world_.split(std::vector{world_rank(place_.moved(Axis::pipe, first)),
                                  world_rank(place_.moved(Axis::pipe, second))});
}

}  // namespace dstrain
