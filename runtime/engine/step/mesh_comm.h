// MeshComm: the communicators of one rank of a mesh (runtime/plan/mesh.h): of all ranks, of its data-parallel group and
// the groups that this is factored into, and of the messages to the neighbouring stages.
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
  // Collective. `world` works on the memory of the ranks' devices, `host` on host memory; they may be one
  // communicator. Both outlive this object.
  MeshComm(Communicator& world, Communicator& host, Place place,
           PipelineSchedule schedule = PipelineSchedule::one_f_one_b);

  MeshComm(const MeshComm&) = delete;
  MeshComm& operator=(const MeshComm&) = delete;
  ~MeshComm();

  Communicator& world() { return world_; }
  // All ranks, for tensors in host memory. The caller must have waited for the operations of world().
  Communicator& host() { return host_; }
  // The ranks that have the same part of the model.
  Communicator& data() { return *channels_[data_group]; }
  // The ranks with which it shares the replicas of a shard. The data-parallel group, if that is not factored.
  Communicator& replicas() { return *channels_[replica_group]; }
  // The channels of a plan, by index. A channel that the stage does not use is its group's communicator.
  std::span<Communicator* const> channels() const {
    return std::span(channels_).first(static_cast<size_t>(channels_of(place_, schedule_)));
  }

 private:
  // Makes the groups of collectives.
  void make_groups();
  // Connects the stages at the ends of some channels, no stage twice.
  void connect(std::span<const ChannelEnd> senders);
  // Collective over the world. Returns the communicator of the ranks in two stages with this rank's number.
  std::unique_ptr<Communicator> pair(int stage, int other);

  Communicator& world_;
  Communicator& host_;
  Place place_;
  PipelineSchedule schedule_;
  std::array<Communicator*, kChannels> channels_{};
  std::vector<std::unique_ptr<Communicator>> parts_;
};

}  // namespace dstrain
