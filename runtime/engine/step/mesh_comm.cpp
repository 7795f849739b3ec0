#include "runtime/engine/step/mesh_comm.h"

namespace dstrain {

MeshComm::MeshComm(Communicator& world, Place place) : world_(world), place_(place) {
  channels_.fill(&world);
  if (place.stages == 1) return;
  std::vector<int> group;
  for (int r = 0; r < place.ranks; ++r) group.push_back(world_rank(place, place.stage, r));
  parts_.push_back(world.split(group));
  channels_.fill(parts_.back().get());
  for (const int parity : {0, 1}) connect(parity);
  const bool outer = place.stage == 0 || place.stage == place.stages - 1;
  parts_.push_back(outer ? pair(0, place.stages - 1) : world.split(std::vector{world.rank()}));
  if (outer) channels_[tied] = parts_.back().get();
}

void MeshComm::connect(int parity) {
  const bool is_lower = place_.stage % 2 == parity;
  const int lower = is_lower ? place_.stage : place_.stage - 1;
  const bool connected = lower >= 0 && lower + 1 < place_.stages;
  // Activations and gradients have a channel each: one must not wait for the other.
  for (const bool forward : {true, false}) {
    parts_.push_back(connected ? pair(lower, lower + 1) : world_.split(std::vector{world_.rank()}));
    if (!connected) continue;
    const Channel channel =
        is_lower ? (forward ? to_next : from_next) : (forward ? from_previous : to_previous);
    channels_[channel] = parts_.back().get();
  }
}

std::unique_ptr<Communicator> MeshComm::pair(int lower, int upper) {
  return world_.split(
      std::vector{world_rank(place_, lower, place_.rank), world_rank(place_, upper, place_.rank)});
}

}  // namespace dstrain
