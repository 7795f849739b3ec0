// MeshComm: the communicators of one rank of a mesh (runtime/plan/mesh.h): of all ranks, of its groups, and of the
// messages to the neighbouring stages.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/plan/mesh.h"

namespace dstrain {

class MeshComm {
 public:
  // Collective. `world` works on the memory of the ranks' devices, `host` on host memory; they may be one
  // communicator. Both outlive this object.
  MeshComm(Communicator& world, Communicator& host, const Place& place,
           PipelineSchedule schedule = PipelineSchedule::one_f_one_b);

  MeshComm(const MeshComm&) = delete;
  MeshComm& operator=(const MeshComm&) = delete;

  Communicator& world() { return world_; }
  // All ranks, for tensors in host memory. The caller must have waited for the operations of world().
  Communicator& host() { return host_; }
  // The ranks that have the same parameters.
  Communicator& data() { return *channels_[kStateChannel]; }
  // The ranks of a group that has a channel, as channel_of().
  Communicator& group(Axes axes) {
    return *channels_[static_cast<size_t>(channel_of(place_, axes))];
  }
  // The channels of a plan, by index. That of a link which the stage does not use is data().
  std::span<Communicator* const> channels() const { return channels_; }

 private:
  // Collective over the world. Returns the communicator of the ranks of a group.
  Communicator& make_group(Axes axes);
  // Connects the stages at the ends of some links, no stage twice.
  void connect(std::span<const LinkEnd> senders);
  // Collective over the world. Returns the communicator of the ranks in two stages with this rank's other coordinates.
  std::unique_ptr<Communicator> pair(int stage, int other);

  Communicator& world_;
  Communicator& host_;
  Place place_;
  std::vector<Communicator*> channels_;
  std::vector<std::unique_ptr<Communicator>> parts_;
};

}  // namespace dstrain
