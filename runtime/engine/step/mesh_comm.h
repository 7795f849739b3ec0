// MeshComm: the communicators of one rank of a mesh (runtime/plan/mesh.h): of all ranks, of its data-parallel group,
// and of the messages to the neighbouring stages.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/plan/mesh.h"

namespace dstrain {

class MeshComm {
 public:
  // Collective. `world` outlives this object.
  MeshComm(Communicator& world, Place place);

  Communicator& world() { return world_; }
  // The ranks that have the same part of the model.
  Communicator& data() { return *channels_[data_group]; }
  // The channels of a plan, by index. A channel that the stage does not use is its group's communicator.
  std::span<Communicator* const> channels() const {
    return std::span(channels_).first(static_cast<size_t>(channels_of(place_)));
  }

 private:
  // Connects every stage with one neighbour: those with an even number with the next one (`parity` 0) or with the
  // previous one (1).
  void connect(int parity);
  // Collective over the world. Returns the communicator of the ranks of two stages with this rank's number.
  std::unique_ptr<Communicator> pair(int lower, int upper);

  Communicator& world_;
  Place place_;
  std::array<Communicator*, kChannels> channels_{};
  std::vector<std::unique_ptr<Communicator>> parts_;
};

}  // namespace dstrain
